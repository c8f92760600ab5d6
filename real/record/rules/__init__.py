"""What recording decides by rule, where PyTorch would compile code or a GPU would compute numbers."""

"""Studies: one question at many points, answered by several processes, with every answer kept."""

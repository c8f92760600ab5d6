"""Studies: one command at many points, run by several processes, with every answer kept."""

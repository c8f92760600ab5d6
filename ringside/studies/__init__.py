"""Studies: one command line asked at many points, by several processes, with every answer kept."""

"""Search for the graphs of the named machines, or of all listed ones, for every release, and store them."""

import json
import sys

from ringside.sim.libraries.nccl.graph.search import KEPT, search_results
from ringside.sim.libraries.nccl.graph.system import SYSTEMS
from ringside.topologies.disk import write_file

for name in sys.argv[1:] or SYSTEMS:
    write_file(KEPT / f"{name}.json", json.dumps(search_results(SYSTEMS[name]), separators=(",", ":")) + "\n")

"""Search for the graphs of the machines named, or of every listed one, by every release, and keep them."""

import json
import sys

from ringside.sim.libraries.nccl.graph.stored_graphs import KEPT, search_results
from ringside.sim.libraries.nccl.graph.system import SYSTEMS
from ringside.topologies.disk import write_file

for name in sys.argv[1:] or SYSTEMS:
    write_file(KEPT / f"{name}.json", json.dumps(search_results(SYSTEMS[name]), separators=(",", ":")) + "\n")

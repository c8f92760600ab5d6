"""Search for the graphs of every listed machine again, by every release, and keep them (minutes)."""

import json

from ringside.sim.libraries.nccl.graph.found import KEPT, found
from ringside.sim.libraries.nccl.graph.systems import SYSTEMS
from ringside.topologies.disk import write_file

for system in SYSTEMS.values():
    write_file(KEPT / f"{system.name}.json", json.dumps(found(system), separators=(",", ":")) + "\n")

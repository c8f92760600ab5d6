"""Plays one schedule in SimGrid's fluid model; for the system's Python, which has SimGrid's module.

The schedule comes as JSON on stdin (`tests.sim.network.cases.plain`); what it took goes to stdout.

CM02 shares a link among flows by the inverse of their latencies, which is no max-min sharing where
routes differ. So the links have none here: a message waits for its latency and sets out then. Its clock
takes what ends within 1e-9 s for one moment, by itself enough to move pipelines of microseconds by 1 %.
"""

import heapq
import json
import sys
import time
from collections import deque

import simgrid
from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, this_actor

FLAGS = (
    "network/model:CM02",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
    "surf/precision:1e-14",
)


class Player:
    """The rules of a schedule: one message of a connection on the links at a time, so many on their way."""

    def __init__(self, engine, hosts, asked):
        self.engine, self.hosts = engine, hosts
        self.connections, self.transfers = asked["connections"], asked["transfers"]
        self.missing = [transfer["missing"] for transfer in self.transfers]
        self.credits = [asked["credits"]] * len(self.connections)
        self.to_send = [deque() for _ in self.connections]
        self.on_links = [deque() for _ in self.connections]
        self.starts, self.flows, self.whose = [], [], []
        for number, transfer in enumerate(self.transfers):
            self.to_send[transfer["connection"]].append(number)

    def play(self):
        for connection in range(len(self.connections)):
            self.advance(connection)
        for _ in self.transfers:
            self.finished(self.next())

    def advance(self, connection):
        queue = self.to_send[connection]
        while queue and self.credits[connection] and not self.missing[queue[0]]:
            self.credits[connection] -= 1
            at = self.engine.clock + self.connections[connection]["latency"]
            heapq.heappush(self.starts, (at, queue.popleft()))

    def next(self):
        """Let time pass until a message is through."""
        while True:
            now = self.engine.clock
            while self.starts and self.starts[0][0] <= now * (1 + 1e-12):
                number = heapq.heappop(self.starts)[1]
                line = self.on_links[self.transfers[number]["connection"]]
                line.append(number)
                if len(line) == 1:
                    self.cross(number)
            if not self.flows:
                this_actor.sleep_until(self.starts[0][0])
                continue
            at = Comm.wait_any_for(self.flows, self.starts[0][0] - now if self.starts else -1)
            if at >= 0:
                del self.flows[at]
                return self.whose.pop(at)

    def cross(self, number):
        transfer = self.transfers[number]
        ends = self.connections[transfer["connection"]]
        flow = Comm.sendto_async(self.hosts[ends["src"]], self.hosts[ends["dst"]], transfer["nbytes"])
        self.flows.append(flow)
        self.whose.append(number)

    def finished(self, number):
        connection = self.transfers[number]["connection"]
        line = self.on_links[connection]
        line.popleft()
        if line:
            self.cross(line[0])
        self.credits[connection] += 1
        may_go = [connection]
        for waiter in self.transfers[number]["waiters"]:
            self.missing[waiter] -= 1
            if not self.missing[waiter]:
                may_go.append(self.transfers[waiter]["connection"])
        for each in may_go:
            self.advance(each)


def main():
    asked = json.load(sys.stdin)
    config = [f"--cfg={flag}" for flag in FLAGS]
    engine = Engine([sys.argv[0], *config, "--log=root.thresh:critical"])
    zone = NetZone.create_full_zone("network")
    links = [zone.create_link(f"link{i}", rate).seal() for i, rate in enumerate(asked["bandwidths"])]
    hosts = [zone.create_host(f"rank{rank}", 1e9).seal() for rank in range(asked["ranks"])]
    pairs = {(one["src"], one["dst"]): one["links"] for one in asked["connections"]}
    for (src, dst), way in pairs.items():
        ends = hosts[src].netpoint, hosts[dst].netpoint
        zone.add_route(*ends, None, None, [LinkInRoute(links[link]) for link in way], False)
    zone.seal()
    Actor.create("player", hosts[0], Player(engine, hosts, asked).play)
    begin = time.perf_counter()
    engine.run()
    seconds = time.perf_counter() - begin
    print(json.dumps({"time_s": engine.clock, "seconds": seconds, "version": simgrid.simgrid_version}))


main()

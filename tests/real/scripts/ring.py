"""Context parallelism by hand: keys travel round a ring of ranks, in batches of messages."""

import os

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
query, key = (nn.Linear(32, 32, device="cuda") for _ in range(2))
parameters = [*query.parameters(), *key.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.01)
for _ in range(5):
    x = torch.randn(16, 32, device="cuda")
    q, k = query(x), key(x)
    scores = [q @ k.T]
    mine = k.detach().contiguous()
    for _ in range(ranks - 1):
        theirs = torch.empty_like(mine)
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, mine, (rank + 1) % ranks),
            dist.P2POp(dist.irecv, theirs, (rank - 1) % ranks),
        ])  # fmt: skip
        for work in works:
            work.wait()
        mine = theirs
        scores.append(q @ mine.T)
    torch.cat(scores, 1).logsumexp(1).mean().backward()
    works = [dist.all_reduce(one.grad, async_op=True) for one in parameters]
    for work in works:
        work.wait()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()

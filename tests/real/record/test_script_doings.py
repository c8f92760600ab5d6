"""What scripts do besides training: they print, save, start ranks, and choose by numbers of the device."""

import os

import pytest

from ringside.real.questions.recording import ScriptRecording
from tests.real.record.test_nasty_scripts import BEGIN
from tests.tiers import slow_or_proof

RANKS = """
import torch, torch.distributed as dist, torch.multiprocessing as mp
def main(rank, ranks):
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    model = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        model(torch.randn(2, 4, device="cuda")).sum().backward()
        dist.all_reduce(model.weight.grad)
        optimizer.step()
"""

DOINGS = {
    "numbers": """
for _ in range(5):
    step()
    loss = model(torch.randn(2, 4, device="cuda")).mean()
    assert f"{loss:.2f} {torch.tensor([loss, loss]).mean():.0f}" == "1.00 1"
    assert torch.isfinite(loss).all() and torch.allclose(loss, loss)
""",
    "files": """
import tempfile
for _ in range(5):
    step()
    with tempfile.TemporaryFile() as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        for place, is_there in (("cpu", False), ("cuda:0", True), (None, False)):
            file.seek(0)
            state = torch.load(file, map_location=place)
            assert state["model"]["weight"].is_cuda == is_there
        model.load_state_dict(state["model"])
    weight, bias = (one.untyped_storage().data_ptr() for one in model.parameters())
    assert weight == model.weight.t().untyped_storage().data_ptr() != bias
""",
    "parameters on the host": """
from torch.distributed.fsdp import fully_shard
frozen = torch.nn.Linear(4, 4).cuda().requires_grad_(False)
fully_shard(frozen)
frozen.load_state_dict({name: one.cpu() for name, one in frozen.state_dict().items()}, assign=True)
host = [torch.zeros(2)]
for _ in range(5):
    step()
    assert frozen(torch.randn(2, 4, device="cuda")).is_cuda
    there = [torch.zeros(2, device="cuda") for _ in range(2)]
    torch._foreach_copy_(there, [torch.ones(2), torch.ones(2, device="cuda")])
    torch._foreach_copy_(host, there[:1])
    assert there[0].is_cuda and not host[0].is_cuda and host[0].tolist() == [1, 1]
""",
    "tools": """
torch.cuda.cudart().cudaProfilerStart()
torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("x"))
assert isinstance(torch.cuda.FloatTensor(2), torch.cuda.FloatTensor)
assert torch.cuda.LongTensor([1, 2]).tolist() == [1, 2]
model = torch.cuda.make_graphed_callables(model, ())
model = torch.nn.DataParallel(model, device_ids=[0])
for _ in range(5): step()
""",
    "batch norm of all ranks": """
model = torch.nn.Sequential(model, torch.nn.BatchNorm1d(4)).cuda()
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5): step()
""",
    "recurrent": """
for _ in range(5):
    step()
    for one in (torch.nn.GRU, torch.nn.LSTM):
        one(4, 4).cuda()(torch.randn(3, 2, 4, device="cuda"))[0].sum().backward()
""",
    "sequences of several lengths": """
sizes = torch.tensor([5, 3])
for _ in range(5):
    step()
    sounds = torch.randn(2, 5, 4, device="cuda")
    packed = torch.nn.utils.rnn.pack_padded_sequence(sounds, sizes, batch_first=True)
    letters, own = torch.nn.utils.rnn.pad_packed_sequence(torch.nn.LSTM(4, 4).cuda()(packed)[0])
    assert letters.shape == (5, 2, 4) and own.tolist() == [5, 3]
""",
    "groups of products": """
for _ in range(5):
    step()
    tokens = torch.randn(64, 32, device="cuda", requires_grad=True)
    weights = torch.randn(2, 32, 16, device="cuda", requires_grad=True)
    ends = torch.tensor([24, 64], device="cuda", dtype=torch.int32)
    torch._grouped_mm(tokens, weights, offs=ends).sum().backward()
    assert weights.grad.shape == (2, 32, 16)
""",
    "masks": """
for _ in range(5):
    step()
    numbers = torch.randn(64, 8, device="cuda")
    assert numbers[numbers > 0.5].shape == (512,)
    assert numbers.nonzero().shape == (512, 2)
""",
    "sequences": """
model = torch.nn.Linear(8, 12).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = torch.nn.CTCLoss(zero_infinity=True)
lengths = torch.full((4,), 50), torch.randint(5, 10, (4,))
for _ in range(5):
    scores = model(torch.randn(50, 4, 8, device="cuda")).log_softmax(2)
    value = loss(scores, torch.randint(1, 12, (4, 10), device="cuda"), *lengths)
    assert value.shape == () and value.is_cuda
    value.backward()
    optimizer.step()
""",
    "objects of several ranks": """
rank, ranks = dist.get_rank(), dist.get_world_size()
for number in range(5):
    step()
    every, root = [None] * ranks, [None] * ranks if rank == 1 else None
    dist.all_gather_object(every, (rank, number))
    assert every == [(one, number) for one in range(ranks)], every
    dist.gather_object((rank, number), root, dst=1)
    assert rank != 1 or root == every
    told = [rank]
    dist.broadcast_object_list(told, src=1)
    assert told == [1]
""",
    "rates on the device": """
for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
    optimizer = kind(model.parameters(), lr=torch.tensor(0.1, device="cuda"), fused=True)
    for _ in range(5): step()
""",
    "offloaded parameters": """
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel
model = FullyShardedDataParallel(model, cpu_offload=CPUOffload(True), use_orig_params=True, device_id=0)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    step()
    assert all(one.device.type == one.grad.device.type == "cpu" for one in model.parameters())
""",
    "ranks of its own": f"{RANKS}\nmp.spawn(main, (torch.cuda.device_count(),), torch.cuda.device_count())",
    "ranks of its own, one by one": f"""{RANKS}
ranks = [mp.Process(target=main, args=(rank, 2)) for rank in range(2)]
for rank in ranks: rank.start()
for rank in ranks: rank.join()
""",
}


@pytest.mark.parametrize("doing", slow_or_proof(list(DOINGS)))
def test_scripts_do_as_with_a_gpu(doing, written):
    begin = "" if doing.startswith("ranks") else BEGIN
    answer = ScriptRecording(
        command=[str(written(begin + DOINGS[doing], "script.py"))], ranks=2 if "ranks" in doing else 1
    ).ask()
    assert all(one.unsteady == "" for one in answer.roles)


@pytest.mark.slow
def test_what_is_assumed_of_numbers_is_noted(written):
    script = f"{BEGIN}\nfor _ in range(5): step(); torch.randn(4, device='cuda').nonzero()"
    answer = ScriptRecording(command=[str(written(script, "script.py"))], ranks=1).ask()
    assert any("script.py:" in note and "masks hide nothing" in note for note in answer.notes)


@pytest.mark.slow
def test_groups_that_a_loop_makes_in_turn_are_parts_of_partitions(written):
    lines = """
for ranks in ([0, 1], [2, 3]):
    one, other = dist.new_group(ranks), dist.new_group(ranks, group_desc="slow")
    both = [dist.new_group(ranks, backend=backend) for backend in ("nccl", "gloo")]
    if dist.get_rank() in ranks: groups = one, other, *both
for _ in range(5):
    step()
    for group in groups: dist.all_reduce(model.weight.grad, group=group)
"""
    job = ScriptRecording(command=[str(written(BEGIN + lines, "script.py"))], ranks=4).ask().job
    assert [group.partition for group in job.groups[1:]] == 4 * [((0, 1), (2, 3))]


@pytest.mark.slow
def test_a_rank_finds_modules_and_random_numbers_as_a_process_of_its_own(written, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    for name in ("beside.py", "other/beside.py", "other/said.py"):
        written(f"NAME = {name!r}\n", name)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"), prepend=os.pathsep)
    lines = """
import random, numpy, beside, said
assert (beside.NAME, said.NAME) == ("beside.py", "other/said.py")
with open(os.path.join(os.path.dirname(__file__), f"drawn{dist.get_rank()}"), "w") as file:
    print(random.random(), numpy.random.random(), file=file)
for _ in range(5): step()
"""
    answer = ScriptRecording(command=[str(written(BEGIN + lines, "script.py"))], ranks=2).ask()
    assert answer.roles[0].operators == 9
    drawn = [(tmp_path / f"drawn{rank}").read_text().split() for rank in range(2)]
    assert len({*drawn[0], *drawn[1]}) == 4

"""Samples of a recorded step: what loaders say surely, or what the user does."""

import pytest

from ringside.real.questions.recording import record
from ringside.sim.recorded.file import write_job
from ringside.validation.questions.step_time import StepTime
from tests.tiers import slow_or_proof

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(200, 8))
sampler = DistributedSampler(data) if "apart" in sys.argv else None
others = DataLoader(data, batch_size=2)
for number, (x,) in enumerate(DataLoader(data, batch_size=5, sampler=sampler, num_workers=2)):
    if "beside" in sys.argv:
        next(iter(others))
    model(x.cuda()).sum().backward()
    if number % 2:
        optimizer.step()
        optimizer.zero_grad()
"""

CASES = [(("apart",), 4, 40), (("apart",), 1, 10), ((), 2, None), (("apart", "beside"), 2, None)]


@pytest.mark.parametrize(("arguments", "ranks", "samples"), slow_or_proof(CASES))
def test_a_sampler_of_parts_says_the_samples_of_a_step(tmp_path, arguments, ranks, samples):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    assert record(str(script), *arguments, ranks=ranks).samples == samples


def test_loaders_keep_the_parameters_that_libraries_look_up(tmp_path):
    script = tmp_path / "train.py"
    begin = "from inspect import signature\nfrom torch.utils.data import DataLoader\n"
    script.write_text(begin + "assert 'dataset' in signature(DataLoader).parameters\n" + SCRIPT)
    assert record(str(script), ranks=1).ranks == 1


@pytest.mark.slow
def test_samples_that_the_user_says_set_the_pace(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    write_job(record(str(script), ranks=2, samples=64), tmp_path / "job.json")
    told = StepTime(model=str(tmp_path / "job.json"), cluster="dgx-h100", measured="1000@2")
    assert told.ask().step.throughput == pytest.approx(1000, rel=1e-3)

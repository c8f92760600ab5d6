from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ringside.real.model.architecture import architecture, architecture_of
from ringside.sim.workload.architecture import KernelSums, workload
from ringside.sim.workload.devices import device
from ringside.sim.workload.workload import Tensor as Described
from tests.sim.training.unusual_models import Checkpointed, Scaling


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(x)).relu().flatten(1))


class Tied(nn.Module):
    """A sparse table, an output layer with the same weight, a frozen layer and an unused one."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16, sparse=sparse)
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.unused = nn.Linear(16, 16)
        self.out = nn.Linear(16, 50)
        self.out.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.frozen(self.table(tokens)))


def test_layers_have_their_tensors_and_their_work() -> None:
    found = architecture(ConvNet(), torch.randn(5, 3, 4, 4))

    names = [f"{layer}.{kind}" for layer in ("conv", "norm", "head") for kind in ("weight", "bias")]
    assert [tensor.name for tensor in found.parameters] == names
    assert [tensor.count for tensor in found.parameters] == [216, 8, 8, 8, 1280, 10]
    assert found.buffers[-1] == Described("norm.num_batches_tracked", 1, "int64")
    conv, norm, head = found.blocks
    assert (conv.name, norm.name, head.name) == ("conv", "norm", "head")
    assert (conv.gradients, norm.gradients, head.gradients) == ((0, 1), (2, 3), (5, 4))
    elements = 8 * 16
    assert (conv.convolves, norm.convolves, head.convolves) == (True, False, False)
    assert conv.forward == KernelSums(2 * 27 * elements, 3 * 16 + elements, weights=216 + 8)
    assert conv.backward == KernelSums(2 * 27 * elements, 3 * 16 + 2 * elements, weights=2 * 216 + 8), (
        "the gradients of weights and bias, each by a kernel, without that of the input"
    )
    assert (norm.forward.moved, norm.backward.moved) == pytest.approx((4 * elements, 6 * elements), rel=0.03)
    assert (norm.forward.launches, norm.backward.launches) == (3, 2), "it counts batches, and relu follows"
    assert head.forward == KernelSums(2 * 1280, elements + 10, weights=1290)
    assert head.backward == KernelSums(4 * 1280, 2 * (elements + 10), 10, 2 * 1280 + 10, 1)
    assert conv.kept == 3 * 16
    assert norm.kept == pytest.approx(2 * elements, rel=0.03)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_module_convolves_in_the_layout_of_its_tensors(layout: torch.memory_format) -> None:
    module = ConvNet().to(memory_format=layout)
    model = architecture(module, torch.randn(5, 3, 4, 4).to(memory_format=layout))
    assert model.channels_last is (layout is torch.channels_last)


def test_work_of_one_sample_does_not_depend_on_the_batch() -> None:
    one, many = (architecture(ConvNet(), torch.randn(batch, 3, 4, 4)) for batch in (2, 64))
    for first, second in zip(one.blocks, many.blocks, strict=True):
        assert (first.forward.flops, first.backward.flops) == (second.forward.flops, second.backward.flops)
        assert first.backward.weights == second.backward.weights


def test_the_module_is_left_as_it_was() -> None:
    module = Tied(sparse=True)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}

    architecture(module, torch.zeros(2, 4, dtype=torch.long))

    assert module.table.sparse
    assert not any(layer._forward_pre_hooks for layer in module.modules())
    assert all(parameter.grad is None and parameter.device.type == "cpu" for parameter in module.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_tied_frozen_and_unused_parameters_count_as_for_ddp() -> None:
    found = architecture(Tied(sparse=True), torch.zeros(2, 4, dtype=torch.long))

    assert [(tensor.name, tensor.sparse) for tensor in found.parameters] == [
        ("table.weight", True),
        ("unused.weight", False),
        ("unused.bias", False),
        ("out.bias", False),
    ]
    assert [index for block in reversed(found.blocks) for index in block.gradients] == [3, 0]
    assert found.flops == 4 * 2 * 16 * (16 + 50)


def test_a_model_on_the_meta_device_needs_no_memory() -> None:
    with torch.device("meta"):
        module = nn.Sequential(*[nn.Linear(100_000, 100_000, bias=False) for _ in range(10)])
        found = architecture(module, torch.empty(8, 100_000))
    assert found.num_parameters == 10**11
    assert workload(found, device("h100"), 8, "bfloat16").totals.nbytes == 4 * 10**11


def test_without_inputs_there_is_only_the_list() -> None:
    found = architecture(ConvNet())
    assert found.parameters == architecture(ConvNet(), torch.randn(1, 3, 4, 4)).parameters
    assert found.flops == 0
    assert [index for block in reversed(found.blocks) for index in block.gradients] == [5, 4, 3, 2, 1, 0]


class Failing(nn.Linear):
    def forward(self, value: Tensor) -> Tensor:
        raise KeyError


class Detached(nn.Linear):
    def forward(self, value: Tensor) -> Tensor:
        return super().forward(value).detach()


@pytest.mark.parametrize(
    ("module", "inputs", "message"),
    [
        (ConvNet(), torch.randn(5, 7), r"ConvNet does not run with these inputs.*write inputs"),
        (nn.Linear(3, 3).requires_grad_(False), torch.randn(1, 3), "Linear has no parameter that requires a"),
        (Failing(3, 3), torch.randn(1, 3), "does not run with these inputs: KeyError"),
        (Detached(3, 3), torch.randn(2, 3), "no output depends on a parameter that is trained"),
    ],
)
def test_a_module_without_an_answer_or_a_gradient_is_refused(
    module: nn.Module, inputs: Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        architecture(module, inputs)


def test_frozen_parameters_are_held_and_not_trained() -> None:
    front = nn.Linear(1000, 1000, bias=False).requires_grad_(False)
    found = architecture(nn.Sequential(front, nn.Linear(1000, 10)), torch.randn(4, 1000))
    assert found.frozen_nbytes == 4_000_000
    assert found.num_parameters == 10_010


def test_backward_does_what_gradients_are_asked_for() -> None:
    def ratios(module: nn.Module, *inputs: Tensor) -> list[float]:
        blocks = architecture(module, *inputs).blocks
        return [block.backward.flops / block.forward.flops for block in blocks]

    chain = nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)])
    assert ratios(chain, torch.randn(2, 8)) == [1, 2, 2], "nobody asks for the gradient of the input"
    chain[0].requires_grad_(False)
    assert ratios(chain, torch.randn(2, 8)) == [0.5, 2], "a frozen first one, counted with the next, has none"
    chain[0].requires_grad_(True)
    chain[1].requires_grad_(False)
    assert ratios(chain, torch.randn(2, 8)) == [2 / 2, 2], (
        "a frozen one between, counted with the one before, passes its input's gradient on"
    )


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointed_layers_run_forward_once_more(use_reentrant: bool) -> None:
    found = architecture(Checkpointed(use_reentrant), torch.randn(2, 64))
    plain = architecture(Checkpointed(None), torch.randn(2, 64))
    wide = [block for block in found.blocks if block.forward.flops and block.name.startswith("blocks")]

    assert [block.backward.flops / block.forward.flops for block in wide] == (
        [3, 3] if use_reentrant else [3, 2]
    ) * 4, "without use_reentrant what ends a checkpoint is not redone: nothing needs it"
    assert sum(block.kept for block in found.blocks) < sum(block.kept for block in plain.blocks) / 2
    assert found.reentrant == use_reentrant
    assert not plain.reentrant


def test_recurrent_layers_have_their_products_counted() -> None:
    found = architecture(nn.LSTM(16, 32, batch_first=True), torch.randn(5, 7, 16))
    assert found.flops == 7 * 2 * 4 * 32 * (16 + 32)
    cells = architecture(nn.GRU(16, 32, batch_first=True), torch.randn(5, 7, 16))
    assert cells.flops == 7 * 2 * 3 * 32 * (16 + 32)
    for model in (found, cells):
        (layer,) = model.blocks
        assert 1.5 * layer.forward.flops < layer.backward.flops <= 2 * layer.forward.flops
        assert 6 <= layer.forward.launches <= 8, "a GPU launches one kernel a step beside its product"


def test_models_that_read_numbers_run_with_them() -> None:
    assert architecture(Scaling(), torch.randn(2, 64)).flops == 2 * 2 * 64 * 700
    with torch.device("meta"):
        module, inputs = Scaling(), torch.randn(2, 64)
    with pytest.raises(ValueError, match="Scaling does not run on the meta device"):
        architecture(module, inputs)


@dataclass
class Answer:
    """As language models of libraries answer: fields, of which some hold nothing."""

    logits: Tensor
    loss: Tensor | None = None


class Experts(nn.Module):
    """A mixture of experts whose router's choice is read, number by number; its head is its table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.router = nn.Linear(16, 4, bias=False)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Answer:
        x = self.table(tokens).flatten(0, 1)
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        mask = nn.functional.one_hot(chosen, 4).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for expert in mask.sum((-1, -2)).nonzero():
            place, rows = torch.where(mask[expert.item()])
            found = self.experts[expert.item()](x[rows]) * weights[rows, place, None]
            out = out.index_add(0, rows, found)
        return Answer(self.head(out))


def test_a_mixture_of_experts_that_reads_its_choices_has_its_gradients_in_torchs_order() -> None:
    torch.manual_seed(0)
    module, tokens = Experts(), torch.arange(50).reshape(5, 10)
    seen: list[str] = []
    for name, parameter in module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name))
    found = architecture(module, tokens)
    module(tokens).logits.sum().backward()
    order = [found.parameters[one].name for block in found.blocks[::-1] for one in block.gradients]
    assert order == seen
    per_token = 2 * (16 * 4 + 2 * 16 * 16 + 16 * 50)
    assert found.flops == 10 * per_token


def test_a_model_file_may_be_called_like_any_module(tmp_path: Path) -> None:
    file = tmp_path / "random.py"
    text = "from torch import nn, randn\ndef model(): return nn.Linear(4, 4), randn({}, 4)\n"
    file.write_text(text.format(3))
    assert architecture_of(f"{file}:model").batch == 3
    (tmp_path / "none.py").write_text(text.format(0))
    with pytest.raises(ValueError, match="inputs without a sample"):
        architecture_of(f"{tmp_path / 'none.py'}:model")


def test_models_with_neighbours_of_one_name_have_each_their_own_as_they_are_now(tmp_path: Path) -> None:
    def counts(folder: str) -> list[int]:
        return [one.count for one in architecture_of(f"{tmp_path / folder / 'net.py'}:model").parameters]

    for folder, width in (("one", 3), ("other", 5)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "parts.py").write_text(f"WIDTH = {width}\ndef width(): return WIDTH\n")
        (tmp_path / folder / "net.py").write_text(
            "from torch import nn, randn\nfrom parts import WIDTH\n"
            "def model():\n    import parts\n    return nn.Linear(WIDTH, parts.width()), randn(2, WIDTH)\n"
        )
    assert [counts("one"), counts("other"), counts("one")] == [[9, 3], [25, 5], [9, 3]]
    (tmp_path / "one" / "parts.py").write_text("WIDTH = 14\ndef width(): return WIDTH\n")
    assert counts("one") == [196, 14]


def test_a_module_that_does_not_fit_its_inputs_says_so_once(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="Linear does not run with these inputs: mat1 and mat2 shapes"):
        architecture(nn.Linear(3, 3), torch.randn(2, 4))
    assert capfd.readouterr() == ("", "")


def test_a_model_that_reads_numbers_and_is_too_large_is_never_built(tmp_path: Path) -> None:
    file = tmp_path / "huge.py"
    file.write_text(
        "import torch\nfrom torch import nn\n"
        "class Huge(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) if x.sum().item() else x\n"
        "def model(): return Huge(10**6, 10**6), torch.randn(2, 10**6)\n"
    )
    with pytest.raises(ValueError, match="without values, and its 3,725 GiB are too much"):
        architecture_of(f"{file}:model")


def test_a_module_whose_parameters_have_no_shape_yet_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text(
        "import torch\n"
        "def never():\n    return torch.nn.LazyLinear(4), torch.ones(3, 5)\n"
        "def called():\n    module, inputs = never()\n    module(inputs)\n    return module, inputs\n"
    )
    with pytest.raises(ValueError, match=r"LazyLinear has lazy layers.*call it once with its inputs"):
        architecture_of(f"{file}:never")
    assert [tensor.count for tensor in architecture_of(f"{file}:called").parameters] == [20, 4]

import pytest

from ringside.sim.libraries.nccl import Pins, Settings, communicator, cost_table
from ringside.sim.libraries.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS

EVERY = frozenset(ALGORITHMS)


@pytest.mark.parametrize(
    ("text", "all_reduce", "all_gather"),
    [
        ("", EVERY, EVERY),
        ("Ring", {"ring"}, {"ring"}),
        ("ring,TREE", {"ring", "tree"}, {"ring", "tree"}),
        ("^PAT", EVERY - {"pat"}, EVERY - {"pat"}),
        ("^pat,nvls", EVERY - {"pat", "nvls"}, EVERY - {"pat", "nvls"}),
        ("allreduce:tree;broadcast:ring", {"tree"}, EVERY),
        ("ring;allreduce:^tree", EVERY - {"tree"}, {"ring"}),
        ("ring;allreduce:tree", {"tree"}, {"ring"}),
        ("ring;AllReduce:NVLSTree,CollNetChain", {"nvls_tree", "collnet_chain"}, {"ring"}),
        ("allreduce:tree;allreduce:ring", {"ring"}, EVERY),
        ("all_reduce:nvls_tree", {"nvls_tree"}, EVERY),
        ("ring;", {"ring"}, {"ring"}),
    ],
)
def test_nccl_algo(text, all_reduce, all_gather):
    pins = Pins(algorithm=text)
    assert pins.algorithms["all_reduce"] == all_reduce
    assert pins.algorithms["all_gather"] == all_gather


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("simple", {"simple"}),
        ("^LL128", {"ll", "simple"}),
        ("LL,Simple;allreduce:^LL", {"ll128", "simple"}),
        ("^LL128;allreduce:LL128", {"ll128"}),
        ("broadcast:ll", None),
    ],
)
def test_nccl_proto(text, expected):
    assert Pins(protocol=text).protocols.get("all_reduce") == expected


@pytest.mark.parametrize(
    ("algorithm", "protocol", "message"),
    [
        (
            "rings",
            "",
            "NCCL_ALGO: unrecognized element token 'rings' when parsing 'rings'; write some of Tree, Ring",
        ),
        ("ring, tree", "", "unrecognized element token ' tree'"),
        ("^trees", "", "unrecognized element token 'trees'"),
        (
            "allreduces:ring",
            "",
            "unrecognized prefix token 'allreduces'.*write one of broadcast, reduce, allgather",
        ),
        ("ring;tree", "", "all entries except the first must have a prefix.*allreduce:tree"),
        ("allreduce:ring:tree", "", "unrecognized element token 'ring:tree'"),
        ("", "LL64", "NCCL_PROTO: unrecognized element token 'LL64'.*LL, LL128, Simple"),
        ("simple", "", "NCCL_ALGO: unrecognized element token 'simple'"),
    ],
)
def test_what_nccl_does_not_recognise_is_an_error(algorithm, protocol, message):
    with pytest.raises(ValueError, match=message):
        Pins(algorithm, protocol)


def choose(machine, nodes, kind, *pins):
    comm = communicator(machine, nodes, settings=Settings(pins=Pins(*pins)))
    return cost_table(comm, kind).choose(2**20)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "broadcast", "reduce"])
def test_tree_alone_leaves_the_other_collectives_without_an_algorithm(kind):
    message = (
        rf"No algorithm/protocol available for function {FUNCTIONS[kind]} with datatype float32\. "
        r"NCCL_ALGO was set to Tree\. Possible here: .*Ring/Simple.* Write for example ring;allreduce:tree"
    )
    with pytest.raises(ValueError, match=message):
        choose("dgx-a100", 2, kind, "Tree")
    assert choose("dgx-a100", 2, kind, "ring;allreduce:tree").algorithm == "ring"
    assert choose("dgx-a100", 2, "all_reduce", "ring;allreduce:tree").algorithm == "tree"


def test_a_pin_that_the_machine_cannot_follow_is_refused():
    with pytest.raises(ValueError, match=r"NCCL_ALGO was set to nvls\. Possible here: Tree/LL, Tree/LL128"):
        choose("dgx-a100", 1, "all_reduce", "nvls")
    with pytest.raises(ValueError, match=r"NCCL_ALGO was set to nvlstree\. NCCL_PROTO was set to ll\."):
        choose("dgx-h100", 2, "all_reduce", "nvlstree", "ll")


def test_naming_ll128_overrides_its_safety_rule():
    assert cost_table(communicator("a100-pcie4"), "all_reduce").rate("ring", "ll128") == 0
    assert choose("a100-pcie4", 1, "all_reduce", "ring", "ll128").protocol == "ll128"
    assert choose("a100-pcie4", 1, "all_reduce", "ring", "^ll,simple").protocol == "ll128"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_a_pin_is_what_is_chosen(algorithm, protocol):
    choice = choose("dgx-h100", 4, "all_reduce", algorithm, protocol)
    assert (choice.algorithm, choice.protocol) == (algorithm, protocol)

"""Two ranks that both send before they receive: with Gloo this never ends, however small the message."""


def main(dist):
    """Run one rank."""
    other = 1 - dist.get_rank()
    dist.send(4, other)
    dist.recv(4, other)

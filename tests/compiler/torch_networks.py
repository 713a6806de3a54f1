"""PyTorch's networks with parameters that no test could pass by accident with."""

from oracles import oracle


def disturbed(network):
    """Random parameters and statistics, none of them zero or one."""
    torch = oracle("torch")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        for name, value in network.named_buffers():
            if "running" in name:
                value.copy_(torch.rand_like(value) + 0.5)
    return network.eval()

"""placeholder until the launch branch is merged"""


def remember(module): ...
def find(group, name):
    return None


def names(group):
    return []

"""The circle method: all pairs of n players in rounds of disjoint pairs."""

from __future__ import annotations


def rounds_needed(players: int) -> int:
    """How many rounds meet every pair once: n - 1 for even n, n for odd n, 0 below two."""
    if players < 2:
        return 0
    return players - 1 if players % 2 == 0 else players


def circle_round(players: int, number: int) -> list[tuple[int, int]]:
    """The pairs of one round.

    Args:
        players: count, 0 or more. With an odd count one player sits out each round.
        number: which round; taken modulo the number of rounds.

    Returns:
        Disjoint pairs of player numbers. Rounds 0 .. rounds_needed - 1 hold each pair once.
    """
    total = rounds_needed(players)
    if total == 0:
        return []
    # `total` players stand on the circle; with an even count one more stands in the middle and
    # meets the player who would otherwise meet nobody.
    turn = number % total
    pairs = [((turn + step) % total, (turn - step) % total) for step in range(1, (total + 1) // 2)]
    if players % 2 == 0:
        pairs.insert(0, (turn, players - 1))
    return pairs

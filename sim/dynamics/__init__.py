"""Models of how a drone accelerates: first_principles works at rotor level."""

"""What steps cost: tables, measuring them, and keeping what was measured."""

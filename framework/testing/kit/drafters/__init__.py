"""The checks of drafters, in the order in which they run.

Each drafts for tiny targets in the real loop, with a spy around the drafter (``spies.py``) that
copies every draft, and looks at what came.
"""

# Importing a module declares its checks; the order here is the order in which they run.
from . import form, inputs, runs, state, edges, law, engine, resources  # noqa: F401, I001

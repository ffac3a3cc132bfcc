"""How the networks in the box were trained: `python -m recipes.networks NAME --data DIRECTORY`."""

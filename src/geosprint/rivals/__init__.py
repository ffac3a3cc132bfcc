"""Every published way to choose the steps, one file each, behind one interface."""

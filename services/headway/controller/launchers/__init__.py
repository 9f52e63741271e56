"""Launchers start processes somewhere: on this machine, for now. A launcher is one module that implements
`launcher.Launcher`.
"""

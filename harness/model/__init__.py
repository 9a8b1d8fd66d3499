"""The data that flows: Shape -> Case -> Arm -> Sample -> Run -> Report. Frozen dataclasses, standard library only."""

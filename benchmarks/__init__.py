"""The benchmark room: Vitral beside its peers and the physical limit, same model, same data, same machine."""

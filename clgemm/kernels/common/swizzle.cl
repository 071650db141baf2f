// The order in which work-groups take the tiles of C. Neighbours take `swizzle` tiles of one column
// before they move to the next column, so that they share panels of A and of B in the last cache:
//
//     swizzle = 2     0 2 4 6         with TRIANGLE     6 0 2 4
//                     1 3 5 7                             1 3 5
//                     8 10 12 14                            9 7
//                     9 11 13 15                              8
//
// With TRIANGLE the tiles left of the diagonal of a square C are left out. One side of a tile divides the other then. In a
// band of `swizzle` rows of tiles, those left of where the last row begins come last.
#ifndef TRIANGLE
#error "TRIANGLE: 1 to leave out the tiles left of the diagonal of a square C, 0 for all of C"
#endif

typedef struct {
  int m, n;  // the tile's row and column, in tiles
} Place;

// The first tile of a row of tiles.
static inline int first_of_row(const int m, const int tile_m, const int tile_n) { return TRIANGLE ? m * tile_m / tile_n : 0; }

// The number of tiles in the first `rows` rows of tiles: all of them, without those that are left out.
static inline int tiles_of_rows(const int rows, const int tiles_n, const int tile_m, const int tile_n) {
  if (!TRIANGLE) return rows * tiles_n;
  const int every = max(1, tile_n / tile_m), more = max(1, tile_m / tile_n);  // after so many rows, so many more are left out
  const int steps = rows / every;
  return rows * tiles_n - more * (every * (steps * (steps - 1) / 2) + rows % every * steps);
}

static inline Place swizzled(const uint index, const int tiles_m, const int tiles_n, const int swizzle, const int tile_m,
                             const int tile_n) {
  int first_m = TRIANGLE ? 0 : index / (swizzle * tiles_n) * swizzle;
#if TRIANGLE
  while (first_m + swizzle < tiles_m && index >= tiles_of_rows(first_m + swizzle, tiles_n, tile_m, tile_n)) first_m += swizzle;
#endif
  const int band = min(swizzle, tiles_m - first_m), first_n = first_of_row(first_m + band - 1, tile_m, tile_n);
  const int in_band = index - tiles_of_rows(first_m, tiles_n, tile_m, tile_n);
  Place place = {first_m + in_band % band, first_n + in_band / band};
#if TRIANGLE
  int left = in_band - band * (tiles_n - first_n);
  if (left >= 0) {
    place.m = first_m, place.n = first_of_row(first_m, tile_m, tile_n);
    while (left >= first_n - place.n) {
      left -= first_n - place.n;
      place.n = first_of_row(++place.m, tile_m, tile_n);
    }
    place.n += left;
  }
#endif
  return place;
}

// The order in which work-groups take the tiles of C. Neighbours take `swizzle` tiles of one column
// before they move to the next column, so that they share panels of A and of B in the last cache:
//
//     swizzle = 2     0 2 4 6
//                     1 3 5 7
//                     8 10 12 14
//                     9 11 13 15
typedef struct {
  int m, n;  // the tile's row and column, in tiles
} Place;

static inline Place swizzled(const uint index, const int tiles_m, const int tiles_n, const int swizzle) {
  const int first_m = index / (swizzle * tiles_n) * swizzle, band = min(swizzle, tiles_m - first_m);
  const uint in_band = index % (swizzle * tiles_n);
  const Place place = {first_m + in_band % band, in_band / band};
  return place;
}

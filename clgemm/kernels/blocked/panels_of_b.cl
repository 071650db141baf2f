// Parameters of pack/vector_panels.cl, which follows and defines pack_panels_b: panels of B of VECTORS * WIDTH
// columns. The work-group that packs a block reads it next, so it stays in a near cache.
#undef PANEL
#undef VECTOR_ROWS
#undef VECTOR_COLUMNS
#undef WRITES
#undef OF
#define PANEL (VECTORS * WIDTH)
#define VECTOR_ROWS VECTOR_ROWS_B
#define VECTOR_COLUMNS VECTOR_COLUMNS_B
#define WRITES 0
#define OF(name) name##_b
#ifndef VECTOR_ROWS_B
#error "VECTOR_ROWS_B: VECTOR_ROWS of pack/vector_panels.cl for panels of B"
#endif
#ifndef VECTOR_COLUMNS_B
#error "VECTOR_COLUMNS_B: VECTOR_COLUMNS of pack/vector_panels.cl for panels of B"
#endif

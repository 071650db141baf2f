// Parameters of pack/vector_panels.cl, which follows and defines pack_panels_a: panels of A of WORK_M rows.
// Other work-groups read them, so they are written as far away.
#undef PANEL
#undef VECTOR_ROWS
#undef VECTOR_COLUMNS
#undef WRITES
#undef OF
#define PANEL WORK_M
#define VECTOR_ROWS VECTOR_ROWS_A
#define VECTOR_COLUMNS VECTOR_COLUMNS_A
#define WRITES (PREFETCH > 0)
#define OF(name) name##_a
#ifndef VECTOR_ROWS_A
#error "VECTOR_ROWS_A: VECTOR_ROWS of pack/vector_panels.cl for panels of A"
#endif
#ifndef VECTOR_COLUMNS_A
#error "VECTOR_COLUMNS_A: VECTOR_COLUMNS of pack/vector_panels.cl for panels of A"
#endif

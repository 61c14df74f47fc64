// Copying a tile of a row-major matrix, with zeros where the tile hangs over the matrix's edge.
#pragma once

// Both factors are zero past the end of k, so that a partial tile adds 0 * 0 and never 0 * NaN.
template <typename Element>
__device__ __forceinline__ Element load_or_zero(const Element* matrix, int pitch, int row, int column,
                                                int rows, int columns) {
    if (row < rows && column < columns) {
        return matrix[static_cast<size_t>(row) * pitch + column];
    }
    return Element(0.0f);
}

// All THREADS threads of a block copy ROWS x COLUMNS elements from (first_row, first_column) on into
// `tile`, neighbouring threads neighbouring columns, and convert them to the tile's type.
// PITCH - COLUMNS is the tile's padding.
template <int COLUMNS, int THREADS, typename To, typename From, int ROWS, int PITCH>
__device__ __forceinline__ void copy_tile(To (&tile)[ROWS][PITCH], int thread, const From* matrix,
                                          int pitch, int first_row, int first_column, int rows,
                                          int columns) {
    static_assert(COLUMNS <= PITCH, "a row of the tile must hold its columns");
    static_assert(ROWS * COLUMNS % THREADS == 0, "every thread copies equally many elements");
#pragma unroll
    for (int element = thread; element < ROWS * COLUMNS; element += THREADS) {
        const int row = element / COLUMNS;
        const int column = element % COLUMNS;
        tile[row][column] = static_cast<To>(
            load_or_zero(matrix, pitch, first_row + row, first_column + column, rows, columns));
    }
}

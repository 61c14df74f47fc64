// Copying a tile of a row-major matrix, with zeros where the tile hangs over the matrix's edge.
#pragma once

// Both factors are zero past the end of k, so that a partial tile adds 0 * 0 and never 0 * NaN.
template <typename Element>
__device__ __forceinline__ Element load_or_zero(const Element* matrix, int pitch, int row,
                                                int column, int rows, int columns) {
    if (row < rows && column < columns) {
        return matrix[static_cast<size_t>(row) * pitch + column];
    }
    return Element(0.0f);
}

// All Threads threads of a block copy Rows x Columns elements from (first_row, first_column) on
// into `tile`, neighbouring threads neighbouring columns, and convert them to the tile's type.
// Pitch - Columns is the tile's padding. Names in capitals are left to the kernels' macros.
template <int Columns, int Threads, typename To, typename From, int Rows, int Pitch>
__device__ __forceinline__ void copy_tile(To (&tile)[Rows][Pitch], int thread, const From* matrix,
                                          int pitch, int first_row, int first_column, int rows,
                                          int columns) {
    static_assert(Columns <= Pitch, "a row of the tile must hold its columns");
    static_assert(Rows * Columns % Threads == 0, "every thread copies equally many elements");
#pragma unroll
    for (int element = thread; element < Rows * Columns; element += Threads) {
        const int row = element / Columns;
        const int column = element % Columns;
        tile[row][column] = static_cast<To>(
            load_or_zero(matrix, pitch, first_row + row, first_column + column, rows, columns));
    }
}

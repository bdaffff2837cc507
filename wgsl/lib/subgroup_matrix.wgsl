// Subgroup matrices (SIDE x SIDE). The threads of a subgroup hold and multiply them together.
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity); // a branch on the subgroup's index is uniform in a subgroup
#param SIDE // rows and columns of a matrix
#param LANES // threads of a subgroup
alias Left = subgroup_matrix_left<f16, SIDE, SIDE>;
alias Right = subgroup_matrix_right<f16, SIDE, SIDE>;
alias Result = subgroup_matrix_result<f32, SIDE, SIDE>;

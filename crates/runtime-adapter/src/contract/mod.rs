//! The contract: one function per behaviour, run against every adapter.
//!
//! A case gets a [`Subject`] with a log of its own, drives the ports with shell scripts that both the fake and a real image
//! understand, and panics when the adapter does not keep the contract. [`check`] runs one case and then makes sure that
//! nothing is left. `contract_suite!` turns all cases into tests; what only a kernel can show is in [`kernel`] and
//! [`limits`].

pub mod admission;
pub mod background;
pub mod beside;
pub mod files;
pub mod files_changed;
pub mod input;
pub mod kernel;
pub mod kills;
pub mod lifecycle;
pub mod limits;
pub mod output;
pub mod quota;
mod subject;

pub use subject::{Adapter, Call, RecordingSink, Restart, Subject, TestClock, check, limits, path_of};

/// Expands to one `#[tokio::test]` per case of the contract. `$subject` is an async function without arguments that gives a
/// fresh [`Subject`].
#[macro_export]
macro_rules! contract_suite {
    ($subject:ident) => {
        $crate::contract_cases! { $subject;
            admission: empty_programs_are_refused, relative_programs_are_refused,
                oversized_arguments_are_refused, bad_environment_names_are_refused,
                a_newline_in_an_argument_is_kept, destroyed_environments_refuse,
                destroy_twice_is_quiet, another_tenant_is_refused, an_expired_handle_is_refused,
                an_unknown_image_is_refused, a_second_foreground_command_is_refused,
                many_at_once_do_not_mix;
            input: standard_input_arrives_and_ends, no_standard_input_is_end_of_file,
                empty_standard_input_is_end_of_file, eight_mebibytes_reach_cat,
                unread_input_is_no_failure, the_environment_arrives_byte_for_byte,
                broken_input_ends_the_command;
            output: any_byte_survives, long_text_is_kept_whole, a_long_line_needs_no_newline,
                head_and_tail_of_long_output, output_over_the_bound_is_cut_and_killed, a_fast_end_does_not_beat_the_bound,
                both_streams_share_the_bound, the_first_chunk_is_not_lost,
                exit_codes_are_the_programs_own, missing_programs_are_start_failures,
                an_equals_sign_is_part_of_the_name, a_missing_directory_is_a_start_failure,
                an_unbalanced_quote_fails_fast, an_exec_ed_program_gives_its_exit_code;
            kills: a_timeout_keeps_partial_output, the_end_of_the_lease_is_expired,
                kill_then_reuse, a_kill_deletes_no_file, cancel_keeps_partial_output,
                what_ends_in_time_is_not_killed, left_processes_are_counted,
                a_dropped_call_runs_on;
            background: runs_beside_the_foreground, a_foreground_kill_ends_it,
                its_own_kill_leaves_the_rest, changes_of_overlapping_commands;
            files_changed: created_modified_deleted, files_of_the_api_are_no_change,
                a_long_list_is_cut_and_flagged;
            files: write_and_read_back, an_empty_file_round_trips, twenty_megabytes_round_trip,
                parents_are_made, bounds_are_kept, wrong_kinds_have_their_own_errors,
                links_are_never_followed, listings_are_sorted_and_paged, any_name_is_listed_exactly,
                removal, provenance_follows_the_writer, provenance_is_never_claimed_beyond_the_list, a_broken_upload_leaves_nothing;
            quota: bytes_over_the_limit_are_disk, inodes_over_the_limit_are_disk,
                over_the_limit_removing_is_all_there_is, adding_in_spite_of_the_limit_ends_the_turns,
                writes_over_the_limit_are_refused, a_full_workspace_can_be_read_and_emptied,
                a_background_command_over_the_limit_is_disk;
            lifecycle: everything_is_listed_with_its_labels, removing_each_object_removes_all,
                destroy_of_an_unknown_environment_is_quiet, a_restarted_service_takes_over,
                what_is_gone_cannot_be_taken_over, the_same_environment_twice_is_refused,
                epochs_of_a_run_share_nothing;
        }
    };
}

/// Used by `contract_suite!`.
#[macro_export]
#[doc(hidden)]
macro_rules! contract_cases {
    ($subject:ident; $($module:ident: $($case:ident),+;)+) => {
        $(mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::contract::check(super::$subject().await, async |subject| {
                    $crate::contract::$module::$case(subject).await;
                })
                .await;
            })+
        })+
    };
}

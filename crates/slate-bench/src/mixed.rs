//! The mixed load: 64 clients that wait for each answer, four reads to a write.

use std::time::Duration;

/// Clients.
pub(crate) const CLIENTS: i32 = 64;
/// Time of the load.
pub(crate) const TIME: Duration = Duration::from_secs(3);
/// Documents that it touches.
const DOCUMENTS: i32 = 10_000;

/// Returns the `_id` of a client's next operation, and true if it is a write.
pub(crate) fn operation(client: i32, number: i32) -> (i32, bool) {
    let id = client.wrapping_mul(997).wrapping_add(number.wrapping_mul(31)).rem_euclid(DOCUMENTS);
    (id, number % 5 == 0)
}

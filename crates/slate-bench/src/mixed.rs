//! The mixed load: 64 clients that wait for each answer, four reads to a write.

use std::time::{Duration, Instant};

use crate::work::Stopwatch;

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

/// Runs the load within this process, a thread per client. `open` returns what does a client's operations. Returns
/// operations per second of processor time.
pub(crate) fn run<O>(open: impl Fn() -> anyhow::Result<O> + Sync) -> anyhow::Result<f64>
where
    O: FnMut(i32, bool) -> anyhow::Result<()>,
{
    let (began, processor) = (Instant::now(), Stopwatch::start());
    let client = |number| {
        let mut operate = open()?;
        let mut done = 0;
        while began.elapsed() < TIME {
            let (id, write) = operation(number, done);
            operate(id, write)?;
            done += 1;
        }
        anyhow::Ok(done)
    };
    let total = std::thread::scope(|scope| -> anyhow::Result<i32> {
        let client = &client;
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        let mut total = 0;
        for client in clients {
            total += client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        Ok(total)
    })?;
    Ok(f64::from(total) / processor.seconds())
}

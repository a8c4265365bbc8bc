//! Slow start: concurrent calls in batches of 1, 2, 4… that stop after a batch with a failure.

use futures_util::future::join_all;

/// Calls `call` for 0 up to `count`. Returns the number of successes, and the first error.
pub(crate) async fn slow_start<F, E>(count: usize, call: impl Fn(usize) -> F) -> (usize, Option<E>)
where
    F: Future<Output = Result<(), E>>,
{
    let (mut done, mut batch) = (0, 1);
    while done < count {
        let end = (done + batch).min(count);
        let results = join_all((done..end).map(&call)).await;
        let successes = results.iter().filter(|result| result.is_ok()).count();
        if let Some(error) = results.into_iter().find_map(Result::err) {
            return (done + successes, Some(error));
        }
        done = end;
        batch *= 2;
    }
    (done, None)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn failure_stops_after_its_batch() {
        let calls = &AtomicUsize::new(0);
        let run = |limit: usize| {
            calls.store(0, Ordering::Relaxed);
            slow_start(500, move |_| async move {
                if calls.fetch_add(1, Ordering::Relaxed) < limit { Ok(()) } else { Err("quota") }
            })
        };
        assert_eq!(run(0).await, (0, Some("quota")));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert_eq!(run(10).await, (10, Some("quota")));
        assert_eq!(calls.load(Ordering::Relaxed), 15);
        assert_eq!(run(1000).await, (500, None));
    }
}

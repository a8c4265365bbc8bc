//! A server in process, and a client whose requests a test can make fail.

#![allow(dead_code, reason = "each test program uses its part")]

pub(crate) mod kubelet;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::{Client, client::Body};

/// Limit on waiting for what must happen.
const DEADLINE: Duration = Duration::from_secs(120);

/// Returns a client whose requests fail with 500 while `fails` says so, and the number of those failures.
pub(crate) fn failing(
    client: Client,
    fails: impl Fn(&http::Request<Body>) -> bool + Send + Sync + 'static,
) -> (Client, Arc<AtomicUsize>) {
    let failures = Arc::new(AtomicUsize::new(0));
    let (fails, count) = (Arc::new(fails), failures.clone());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let client = client.clone();
        let fail = fails(&request);
        if fail {
            count.fetch_add(1, Ordering::Relaxed);
        }
        async move {
            if fail {
                let mut response = http::Response::new(Body::from(b"injected failure".to_vec()));
                *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
                return Ok(response);
            }
            client.send(request).await
        }
    });
    (Client::new(service, "default"), failures)
}

/// Waits until a request returns what is wanted.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    purpose: &str,
    mut found: impl FnMut() -> F,
) -> T {
    let look = async {
        loop {
            if let Some(found) = found().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, look).await.unwrap_or_else(|_| panic!("{purpose} did not happen"))
}

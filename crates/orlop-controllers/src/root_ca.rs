//! The root CA of the cluster, which rotations change.

use tokio::sync::watch;

/// PEM of the certificates that clients of the cluster trust, which may change.
#[derive(Clone, Debug)]
pub struct RootCa(watch::Receiver<String>);

impl Default for RootCa {
    fn default() -> Self {
        String::new().into()
    }
}

impl From<String> for RootCa {
    fn from(pem: String) -> Self {
        Self(watch::channel(pem).1)
    }
}

impl From<watch::Receiver<String>> for RootCa {
    fn from(changes: watch::Receiver<String>) -> Self {
        Self(changes)
    }
}

impl RootCa {
    /// Runs something that lasts for ever with the current certificates, and anew whenever they change.
    pub(crate) async fn run_with<F: Future<Output = ()>>(mut self, run: impl Fn(String) -> F) {
        loop {
            let current = self.0.borrow_and_update().clone();
            tokio::select! {
                () = run(current) => return,
                // Without a sender they never change.
                Ok(()) = self.0.changed() => {}
            }
        }
    }
}

//! Runs registered controllers, each while this process holds its lease.

use std::{borrow::Cow, fmt::Debug, hash::Hash, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use orlop_client::Client;
use tokio::{sync::watch, time::sleep};

use super::{
    EventForm, Informers, LeaderElection, Metrics, Recorder, WorkQueue, election::Candidate,
    events::Recorders, metrics::ControllerMetrics,
};

/// Pause before a controller that ended or panicked is started again.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Limit on freeing a lease when the process stops.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Dependencies of a controller.
#[derive(Clone)]
pub struct Context {
    /// Client of the API.
    pub client: Client,
    /// Caches that controllers of this process share.
    pub informers: Informers,
    recorders: Recorders,
    metrics: ControllerMetrics,
}

impl Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("metrics", &self.metrics).finish_non_exhaustive()
    }
}

impl Context {
    /// Returns a new work queue, measured under the controller's name.
    pub fn work_queue<T: Clone + Debug + Eq + Hash + Send + 'static>(&self) -> Arc<WorkQueue<T>> {
        Arc::new(WorkQueue::new(self.metrics.clone()))
    }

    /// Returns a recorder of events of a component.
    pub fn recorder(&self, component: impl Into<Cow<'static, str>>, form: EventForm) -> Arc<Recorder> {
        self.recorders.of(component.into(), form)
    }
}

type Run = Box<dyn Fn(Context) -> BoxFuture<'static, ()> + Send + Sync>;

/// Registered controllers.
pub struct Manager {
    client: Client,
    controllers: Vec<(&'static str, Run, Option<Client>)>,
    election: Option<LeaderElection>,
    metrics: Metrics,
}

impl Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.controllers.iter().map(|(name, ..)| name).collect();
        f.debug_struct("Manager").field("controllers", &names).finish_non_exhaustive()
    }
}

impl Manager {
    /// A manager without controllers. They run at once, without election, unless
    /// [`with_leader_election`](Self::with_leader_election) says otherwise.
    pub fn new(client: Client) -> Self {
        Self { client, controllers: Vec::new(), election: None, metrics: Metrics::default() }
    }

    /// Makes every controller wait for its lease. Needed where other processes may run the same controllers.
    #[must_use]
    pub fn with_leader_election(mut self, election: Option<LeaderElection>) -> Self {
        self.election = election;
        self
    }

    /// Gives each registered controller a client of its own, as a user of its own. Without this they share the
    /// manager's, which is always the one for leases.
    #[must_use]
    pub fn with_clients(mut self, client: impl Fn(&'static str) -> Client) -> Self {
        for (name, _, own) in &mut self.controllers {
            *own = Some(client(name));
        }
        self
    }

    /// Registers a controller: a function that runs until it is dropped.
    pub fn register<F>(&mut self, name: &'static str, run: impl Fn(Context) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.controllers.push((name, Box::new(move |context| run(context).boxed()), None));
    }

    /// Returns the metrics of its controllers.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Runs every controller until `shutdown`, then frees their leases.
    pub fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> BoxFuture<'static, ()> {
        self.run_until(Box::pin(shutdown))
    }

    fn run_until(self, shutdown: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (stop, stopped) = watch::channel(false);
            let (informers, recorders) =
                (Informers::new(self.client.clone()), Recorders::new(self.client.clone()));
            let running = self.controllers.into_iter().map(|(name, run, own)| {
                let metrics = self.metrics.of(name);
                let context = Context {
                    client: own.unwrap_or_else(|| self.client.clone()),
                    informers: informers.clone(),
                    recorders: recorders.clone(),
                    metrics: metrics.clone(),
                };
                let candidate = self
                    .election
                    .clone()
                    .map(|settings| Candidate::new(self.client.clone(), format!("orlop-{name}"), settings));
                let controller = Controller { name, run, context, metrics };
                // A task each: one that is busy does not delay another.
                tokio::spawn(controller.run(candidate, stopped.clone()))
            });
            let running = join_all(running.collect::<Vec<_>>());
            shutdown.await;
            stop.send_replace(true);
            running.await;
        })
    }
}

/// One controller and what it runs with.
struct Controller {
    name: &'static str,
    run: Run,
    context: Context,
    metrics: ControllerMetrics,
}

impl Controller {
    async fn run(self, candidate: Option<Candidate>, mut stopped: watch::Receiver<bool>) {
        // An error means that the manager is gone, which ends the controller too.
        let stop = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
        tokio::pin!(stop);
        let Some(mut candidate) = candidate else {
            self.metrics.set_leader(true);
            tokio::select! {
                () = self.run_forever() => {}
                () = stop => {}
            }
            return;
        };
        loop {
            tokio::select! {
                () = candidate.acquire() => {}
                () = &mut stop => return,
            }
            tracing::info!(controller = self.name, "acquired the lease");
            self.metrics.set_leader(true);
            let lost = tokio::select! {
                () = self.run_forever() => false,
                () = candidate.renew() => true,
                () = &mut stop => false,
            };
            self.metrics.set_leader(false);
            if !lost {
                // The controller has been dropped: nothing of it runs any more.
                match tokio::time::timeout(RELEASE_TIMEOUT, candidate.release()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        tracing::debug!(%error, controller = self.name, "cannot free the lease");
                    }
                    Err(_) => tracing::debug!(controller = self.name, "freeing the lease took too long"),
                }
                return;
            }
            tracing::warn!(controller = self.name, "lost the lease; waiting to acquire it again");
        }
    }

    /// Runs the controller, again should it end or panic.
    async fn run_forever(&self) {
        loop {
            let ended = AssertUnwindSafe((self.run)(self.context.clone())).catch_unwind().await;
            match ended {
                Ok(()) => tracing::warn!(controller = self.name, "the controller ended; it is started again"),
                Err(_) => {
                    tracing::error!(controller = self.name, "the controller panicked; it is started again");
                }
            }
            sleep(RESTART_DELAY).await;
        }
    }
}

//! The chain of a request: every filter, in order, in one place.
//!
//! panic guard → audit → deadline → authentication → impersonation → authorization → intake → flow control → routes.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use tokio::task::JoinSet;
use tower::Service;

use crate::{
    auth::{Tokens, User, authorization, pki::Shown},
    cluster::Cluster,
    endpoints::routes::{self, Endpoints},
    filters::{
        audit, authentication, deadline,
        flow_control::FlowControl,
        impersonation,
        intake::{ConnectionIntake, Intake},
        panic_guard,
    },
    http::{
        body::Body, compression, negotiation::content_type, query::Query, response, warnings::Warnings,
        websocket::Upgrade,
    },
    metrics::{Labels, RegisterMetrics},
    request::RequestInfo,
};

/// What answers requests: a cluster and who may use it.
#[derive(Clone, Debug)]
pub struct Chain {
    endpoints: Endpoints,
    tokens: Tokens,
    intake: Intake,
    flow_control: FlowControl,
}

/// What a connection has in store for each of its requests.
#[derive(Debug)]
pub(crate) struct Connected {
    /// Who the client has shown itself to be.
    pub(crate) shown: Shown,
    /// Its part of what bodies may take; none within the process.
    pub(crate) intake: Option<ConnectionIntake>,
}

impl Chain {
    /// A chain in front of a cluster.
    pub fn new(cluster: Arc<Cluster>, tokens: Tokens) -> Self {
        Self {
            endpoints: Endpoints { cluster, health: Arc::default(), metrics: Arc::default() },
            tokens,
            intake: Intake::default(),
            flow_control: FlowControl::default(),
        }
    }

    /// Says what has to be done before the server is ready: each step is a health check that fails until
    /// [`Chain::done`]. Until [`ROUTES`](crate::endpoints::health::ROUTES) is done, an unknown path may be one that is
    /// still to come, and is answered so.
    pub fn expect(&self, steps: &[&'static str]) {
        self.endpoints.health.expect(steps);
    }

    /// Says that a step of starting is done.
    pub fn done(&self, step: &str) {
        self.endpoints.health.done(step);
    }

    /// Adds metrics of another part of the process, such as controllers, to `/metrics`.
    pub fn add_metrics(&self, register: RegisterMetrics) {
        self.endpoints.metrics.add(register);
    }

    /// Says that the server is about to stop: it answers as before, but is no longer ready.
    pub fn stopping(&self) {
        self.endpoints.health.stop();
    }

    /// The chain as a service on behalf of one user: for clients in the same process, such as controllers,
    /// which then need no network and no credentials (`kube::Client::new(chain.service(user), "default")`).
    ///
    /// As over a network, what has been asked for goes on whether or not the client looks at it meanwhile: it may hold a
    /// connection to the database that the client's next request waits for.
    pub fn service<B>(
        &self,
        user: User,
    ) -> impl Service<Request<B>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + use<B>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let connected = Arc::new(Connected { shown: Shown::User(Arc::new(user)), intake: None });
        let chain = self.clone();
        tower::service_fn(move |request| {
            let (chain, connected) = (chain.clone(), connected.clone());
            let answer = async move { chain.answer_on(&connected, request).await.map(Body::detach) };
            async move {
                // A set of one: its task ends with it, if the client gives up.
                let mut task = JoinSet::new();
                task.spawn(answer);
                // Panics are answered within, so the rest is a runtime that shuts down.
                Ok(task.join_next().await.and_then(Result::ok).unwrap_or_else(unavailable))
            }
        })
    }

    /// The cluster behind it.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.endpoints.cluster
    }

    /// Ends what stays open, because the server stops.
    pub fn close(&self) {
        self.endpoints.cluster.close();
    }

    /// Answers a request. `certificate` is whom the connection belongs to, if it showed a certificate.
    pub async fn answer<B>(&self, request: Request<B>, certificate: Option<&User>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let shown = certificate.map_or(Shown::Nothing, |user| Shown::User(Arc::new(user.clone())));
        self.answer_on(&Connected { shown, intake: None }, request).await
    }

    /// Answers a request that came on a connection.
    pub(crate) async fn answer_on<B>(&self, connected: &Connected, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut parts, incoming) = request.into_parts();
        let record = audit::Record::begin(&parts.headers);
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::of(&parts.method, parts.uri.path(), &query);
        let is_watch = info.verb == "watch";
        let upgrade = Upgrade::of(&mut parts).filter(|_| is_watch);
        let running = self.endpoints.metrics.requests.begin(&info);
        let apply = content_type(&parts.headers).starts_with("application/apply-patch");
        let labels = Labels::of(&info, parts.uri.path(), &query, apply);
        let mut who = audit::Who::default();
        let warnings = Warnings::default();
        let answered = panic_guard::guard(async {
            let user = authentication::authenticate(
                &self.endpoints.cluster,
                &parts.headers,
                &connected.shown,
                &self.tokens,
            )
            .await?;
            who.asks = Some(user.clone());
            let user = impersonation::impersonate(user, &parts.headers)?;
            who.acts_as = Some(user.clone());
            let limit = deadline::of(&query)?;
            let work = async {
                authorization::authorize(&user, &info, parts.uri.path())?;
                let body = self.intake.read(incoming, connected.intake.as_ref()).await?;
                let place = self.flow_control.place().await?;
                let answered = routes::route(
                    &self.endpoints,
                    &parts,
                    info,
                    query,
                    body.bytes.clone(),
                    user.clone(),
                    warnings.clone(),
                )
                .await;
                drop((place, body));
                answered
            };
            deadline::within(limit, work).await
        })
        .await;
        drop(running);
        let mut response = answered.unwrap_or_else(|status| response::status(&parts.headers, &status));
        warnings.write_to(&mut response);
        if !is_watch {
            response = compression::compress(response, &parts.headers);
        }
        let code = response.status().as_u16();
        let headers = response.headers_mut();
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        record.end(&parts.method, parts.uri.path(), &who, headers, code);
        let started = record.started();
        let kinds = || self.endpoints.cluster.objects.registry.kinds();
        let response =
            response.map(|body| self.endpoints.metrics.requests.end(labels, kinds, started, code, body));
        match upgrade {
            Some(upgrade) => upgrade.take(response),
            None => response,
        }
    }
}

fn unavailable() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

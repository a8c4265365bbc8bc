//! The filters of a request, in order.
//!
//! CORS → panic guard → deadline → authentication → trace → audit → impersonation → authorization → intake →
//! flow control → routes. A request for an extension API server is sent on after flow control, with its body unread.
//!
//! Authorization comes before intake, so that nobody unauthorized can fill it.

use std::{convert::Infallible, net::IpAddr, pin::pin, sync::Arc, time::Instant};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use orlop_api::{status::Status, user::UserInfo};
use orlop_audit::Auditor;
use orlop_flow_control::Collected;
use orlop_trace::{Span, Tracer, in_span};
use tokio::task::JoinSet;
use tower::Service;

use crate::{
    aggregation::{self, Received},
    auth::{Access, authentication::Peer},
    authentication::AuthenticationOptions,
    authorization::BuiltinAuthorizers,
    cluster::Cluster,
    endpoints::{
        health::CheckCall,
        offload::Offload,
        routes::{self, Endpoints},
    },
    filters::{
        audit::{self, Auditing},
        authentication,
        authorization::{self, AuthorizationMetrics},
        deadline,
        flow_control::{self, Arrived, Origin},
        hygiene::Hygiene,
        impersonation,
        intake::{ConnectionIntake, Intake},
        panic_guard, trace,
    },
    http::{
        body::Body, compression, negotiation::content_type, query::Query, request_body::RequestBody,
        response, warnings::Warnings, websocket::Upgrade,
    },
    metrics::{Labels, RegisterMetrics},
    request::{Attributes, Deadline, Subresource, Verb},
};

/// The filters and endpoints of a cluster.
#[derive(Clone, Debug)]
pub struct Chain {
    endpoints: Endpoints,
    intake: Intake,
    auditor: Option<Arc<Auditor>>,
    hygiene: Arc<Hygiene>,
    authorization_metrics: AuthorizationMetrics,
    tracer: Option<Arc<Tracer>>,
}

/// State of a connection that its requests share.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// The client.
    pub(crate) client: Peer,
    /// The connection's budget of request bodies; `None` in process.
    pub(crate) intake: Option<ConnectionIntake>,
    /// Address of the client; `None` in process.
    pub(crate) peer: Option<IpAddr>,
    /// Tells the client to open another connection, after the requests that are open.
    pub(crate) goaway: Option<tokio::sync::Notify>,
    /// True if the audit log is written before bytes of a response leave.
    pub(crate) behind_barrier: bool,
}

impl ConnectionState {
    fn in_process(client: Peer) -> Self {
        Self { client, intake: None, peer: None, goaway: None, behind_barrier: false }
    }

    fn origin(&self) -> Origin {
        if self.intake.is_some() { Origin::Client } else { Origin::InProcess }
    }
}

impl Chain {
    /// Returns the chain of a cluster that accepts other credentials besides its own service accounts': static tokens,
    /// for one. Requests are authorized by Node and RBAC, until the cluster's authorizers are replaced.
    pub fn new(cluster: Arc<Cluster>, authentication: impl Into<AuthenticationOptions>) -> Self {
        cluster.authorizer().replace(BuiltinAuthorizers::new(&cluster).default_modes());
        let authentication = authentication.into();
        let reloads = authentication.reloads.clone();
        let access = Access {
            authenticator: authentication.build(&cluster),
            authorizer: cluster.authorizer().clone(),
        };
        let metrics = access.authenticator.metrics().clone();
        let chain = Self {
            endpoints: Endpoints {
                cluster,
                access: Arc::new(access),
                offload: Offload::default(),
                health: Arc::default(),
                metrics: Arc::default(),
            },
            intake: Intake::default(),
            auditor: None,
            hygiene: Arc::default(),
            authorization_metrics: AuthorizationMetrics::default(),
            tracer: None,
        };
        chain.add_metrics(Box::new(move |registry| metrics.register(registry)));
        let metrics = chain.authorization_metrics.clone();
        chain.add_metrics(Box::new(move |registry| metrics.register(registry)));
        let metrics = chain.endpoints.cluster.admission_metrics.clone();
        chain.add_metrics(Box::new(move |registry| metrics.register(registry)));
        let controller = chain.cluster().flow_control.controller.clone();
        chain.add_metrics(Box::new(move |registry| {
            registry.register_collector(Box::new(Collected(controller.clone())));
        }));
        if let Some(reloads) = reloads {
            chain.add_metrics(Box::new(move |registry| reloads.register(registry)));
        }
        chain
    }

    /// Sets the audit of requests.
    #[must_use]
    pub fn with_auditor(mut self, auditor: Option<Arc<Auditor>>) -> Self {
        if let Some(auditor) = &auditor {
            let metrics = auditor.metrics().clone();
            self.add_metrics(Box::new(move |registry| metrics.register(registry)));
        }
        self.auditor = auditor;
        self
    }

    /// Declares the steps of the start. Each is a health check that fails until [`Chain::done`]. Until
    /// [`ROUTES`](crate::endpoints::health::ROUTES) is done, unknown paths are answered with 503.
    pub fn expect(&self, steps: &[&'static str]) {
        self.endpoints.health.expect(steps);
    }

    /// Completes a step of the start.
    pub fn done(&self, step: &str) {
        self.endpoints.health.done(step);
    }

    /// Adds metrics of another part of the process, such as controllers, to `/metrics`.
    pub fn add_metrics(&self, register: RegisterMetrics) {
        self.endpoints.metrics.add(register);
    }

    /// Adds a health check of another part of the process.
    pub fn add_check(&self, name: &'static str, call: CheckCall) {
        self.endpoints.health.add_check(name, call);
    }

    /// Sets the tracer of requests.
    #[must_use]
    pub fn with_tracer(mut self, tracer: Option<Arc<Tracer>>) -> Self {
        self.tracer = tracer;
        self
    }

    /// Sets headers for browsers and load balancers.
    #[must_use]
    pub fn with_hygiene(mut self, hygiene: Hygiene) -> Self {
        self.hygiene = Arc::new(hygiene);
        self
    }

    /// Returns true if a connection should be told to go away after a request.
    pub(crate) fn sends_goaway(&self) -> bool {
        self.hygiene.sends_goaway()
    }

    /// Returns what connections wait for before they send a response, if anything.
    pub(crate) fn write_barrier(&self) -> Option<Arc<dyn orlop_net::http::WriteBarrier>> {
        let auditor = self.auditor.clone()?;
        Some(Arc::new(audit::LogBarrier(auditor)))
    }

    /// Fails readiness before a shutdown. Requests are still answered.
    pub fn stopping(&self) {
        self.endpoints.health.stop();
    }

    /// Returns the chain as a service of one user, for clients in the same process such as controllers, which
    /// need no network and no credentials (`kube::Client::new(chain.service(user), "default")`).
    ///
    /// As over a network, a request makes progress whether or not its client polls it: it may hold a database
    /// connection that the client's next request waits for.
    pub fn service<B>(
        &self,
        user: UserInfo,
    ) -> impl Service<Request<B>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + use<B>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let connection = Arc::new(ConnectionState::in_process(Peer::InProcess(Arc::new(user))));
        let chain = self.clone();
        tower::service_fn(move |request: Request<B>| {
            let answer =
                chain.clone().answer_detached(connection.clone(), request.map(RequestBody::in_process));
            answer.map(Ok)
        })
    }

    /// Answers a request on a task of its own, which is aborted with the returned future.
    fn answer_detached(
        self,
        connection: Arc<ConnectionState>,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Response<Body>> {
        Box::pin(async move {
            let mut task = JoinSet::new();
            task.spawn(async move { self.answer_on(&connection, request).await.map(Body::detach) });
            // The chain catches panics: only a runtime that shuts down cancels the task.
            task.join_next().await.and_then(Result::ok).unwrap_or_else(unavailable)
        })
    }

    /// Returns the cluster.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.endpoints.cluster
    }

    /// Ends long-running requests on shutdown.
    pub fn close(&self) {
        self.endpoints.cluster.close();
    }

    /// Answers a request of this process. `user` is the authenticated user, if any.
    pub fn answer<B>(&self, request: Request<B>, user: Option<&UserInfo>) -> BoxFuture<'_, Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let client = user.map_or(Peer::Unknown, |user| Peer::InProcess(Arc::new(user.clone())));
        self.answer_in_process(ConnectionState::in_process(client), request.map(RequestBody::in_process))
    }

    fn answer_in_process(
        &self,
        connection: ConnectionState,
        request: Request<RequestBody>,
    ) -> BoxFuture<'_, Response<Body>> {
        Box::pin(async move { self.answer_on(&connection, request).await })
    }

    /// Answers a request of a connection.
    pub(crate) async fn answer_on(
        &self,
        connection: &ConnectionState,
        request: Request<RequestBody>,
    ) -> Response<Body> {
        let (mut parts, incoming) = request.into_parts();
        if let Some(preflight) = self.hygiene.preflight(&parts) {
            return preflight;
        }
        self.hygiene.maybe_goaway(&parts, connection.goaway.as_ref());
        let access = &self.endpoints.access;
        // Nothing but authentication and impersonation sees the headers that carry identities.
        let presented = access.authenticator.take(&mut parts.headers);
        let mut record = audit::Record::start(&parts.headers);
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        // Shared with the record: a copy is made only for a user that is impersonated.
        let mut attributes = Arc::new(Attributes::of(&parts.method, parts.uri.path(), &query));
        let is_watch = attributes.verb == Verb::Watch;
        let is_long_running = attributes.is_long_running();
        let remote = self.endpoints.cluster.aggregator.route(parts.uri.path());
        // Others that switch protocols are answered by a node, or by an extension API server.
        let is_log = attributes.verb == Verb::Get && attributes.subresource == Some(Subresource::Log);
        let upgrade = match remote.is_none() {
            true if is_watch => Upgrade::of_watch(&mut parts),
            true if is_log => Upgrade::of_log(&mut parts),
            _ => None,
        };
        let in_flight = self.endpoints.metrics.requests.begin(&attributes);
        let is_apply = content_type(&parts.headers).starts_with("application/apply-patch");
        let labels = Labels::of(&attributes, parts.uri.path(), &query, is_apply);
        let warnings = Warnings::default();
        let mut body_is_unread = !http_body::Body::is_end_stream(&incoming);
        let mut span = None;
        let limit = deadline::of(&query);
        if let Ok(limit) = &limit
            && !attributes.verb.is_read_only()
        {
            parts.extensions.insert(Deadline(Instant::now() + *limit));
        }
        let mut class = None;
        // Filters get futures that are pinned already: each move of one copies all of it.
        let (answered, panic) = {
            let guarded = pin!(async {
                let auditing = Auditing {
                    auditor: self.auditor.as_ref(),
                    parts: &parts,
                    peer: connection.peer,
                    behind_barrier: connection.behind_barrier,
                };
                let limit = limit.inspect_err(|_| record.refuse(&auditing, &attributes))?;
                let work = pin!(async {
                    let path = parts.uri.path();
                    let authenticated =
                        authentication::authenticate(access, &presented, &connection.client, path, &warnings)
                            .await
                            .inspect_err(|_| record.refuse(&auditing, &attributes))?;
                    Arc::make_mut(&mut attributes).user = authenticated.user;
                    span = trace::start(self.tracer.as_ref(), &parts, &attributes, record.started());
                    let active = span.as_ref().map(Span::active);
                    let work = pin!(async {
                        record.receive(&auditing, &attributes).await?;
                        if let Some(audit) = record.context() {
                            let annotations = authenticated.annotations.into_iter();
                            annotations.for_each(|(key, value)| audit.annotate(key, value));
                        }
                        let headers = &presented.impersonation;
                        let constraint = impersonation::impersonate(access, &mut attributes, headers).await?;
                        record.impersonate(&attributes.user, constraint);
                        let metrics = &self.authorization_metrics;
                        let authorized =
                            authorization::authorize(&access.authorizer, metrics, &attributes, &mut record);
                        in_span("authorization", Vec::new, authorized).await?;
                        // An extension API server reads the body itself, as it arrives.
                        let (read, unread) = match &remote {
                            None => {
                                (Some(self.intake.read(incoming, connection.intake.as_ref()).await?), None)
                            }
                            Some(_) => (None, Some(incoming)),
                        };
                        body_is_unread = false;
                        let arrived = Arrived {
                            attributes: &attributes,
                            path,
                            query: &query,
                            origin: connection.origin(),
                            started: record.started(),
                            limit,
                        };
                        let admitted = flow_control::admit(&self.endpoints.cluster.flow_control, arrived);
                        let permit;
                        (permit, class) = in_span("flow control", Vec::new, admitted).await;
                        let permit = match permit {
                            Ok(permit) => permit,
                            Err(rejected) => return Ok(rejected.response()),
                        };
                        if let (Some(remote), Some(incoming)) = (&remote, unread) {
                            let received = Received {
                                method: &parts.method,
                                uri: &parts.uri,
                                headers: &parts.headers,
                                extensions: &parts.extensions,
                                peer: connection.peer,
                                user: &attributes.user,
                                audit_id: record.id(),
                                limit: (!is_long_running).then_some(limit),
                            };
                            // Boxed: a request that is answered here should not be larger for it.
                            let response = Box::pin(aggregation::forward(remote, received, incoming)).await;
                            return Ok(permit.hold(response));
                        }
                        let bytes = read.as_ref().map(|body| body.bytes.clone()).unwrap_or_default();
                        let (warnings, audit) = (warnings.clone(), record.context());
                        let answered =
                            routes::route(&self.endpoints, &parts, attributes, query, bytes, warnings, audit)
                                .await;
                        drop(read);
                        answered.map(|response| permit.hold(response))
                    });
                    match active {
                        None => work.await,
                        Some(active) => active.scope(work).await,
                    }
                });
                deadline::within(limit, work).await
            });
            panic_guard::guard(guarded).await
        };
        drop(in_flight);
        if let Err(status) = &answered {
            record.fail(status, panic.as_deref());
        }
        let mut response =
            answered.unwrap_or_else(|status: Status| response::status(&parts.headers, &status));
        crate::http::warnings::write_to(&warnings, &mut response);
        response = record.capture(response);
        // An extension API server compresses its responses itself.
        if !is_long_running && remote.is_none() {
            response = compression::compress(response, &parts.headers);
        }
        let code = response.status().as_u16();
        let headers = response.headers_mut();
        if let Some(class) = &class {
            flow_control::write_headers(class, headers);
        }
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        if body_is_unread && parts.version <= Version::HTTP_11 {
            // The rest of the body would be taken for the next request: the connection ends with this one.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        self.hygiene.write_to(&parts.headers, headers);
        record.finish(&parts, headers, code);
        trace::end(span, code);
        if parts.method == Method::HEAD {
            response = without_body(response);
        }
        let started = record.started();
        let kinds = || self.endpoints.cluster.objects.registry.kinds();
        let requests = &self.endpoints.metrics.requests;
        let response = response.map(|body| requests.end(labels, kinds, started, code, body));
        let response = record.complete(response).await;
        match upgrade {
            Some(upgrade) => upgrade.take(response),
            None => response,
        }
    }
}

/// Removes the body of a response to HEAD, and keeps its length. HTTP/2 would send the body otherwise.
fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if let Some(length) = body.exact_length() {
        parts.headers.entry(header::CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    }
    Response::from_parts(parts, Body::empty())
}

fn unavailable() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

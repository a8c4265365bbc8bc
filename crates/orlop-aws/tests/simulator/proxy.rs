//! A proxy in front of a simulator that injects faults and counts calls.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use crate::plays::{self, Played, Plays};

/// Time without calls after which a controller has nothing to do any more.
const QUIET: Duration = Duration::from_millis(250);

/// A fault.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    Delay(Duration),
    /// An answer of the proxy's own: status and code.
    Answer(u16, &'static str),
    /// The same with a message.
    Say(u16, &'static str, &'static str),
    /// Success by the proxy's own word, with a body. It counts as a call.
    Pretend(&'static str),
    /// The call happens, its answer is lost.
    CutAfterSend,
    /// The call does not happen.
    CutBefore,
    /// A text of the answer is replaced: AWS says what the simulator does not.
    Replace(&'static str, &'static str),
}

/// A fault for calls whose description contains a text, some times.
#[derive(Clone, Debug)]
struct Rule {
    matching: String,
    /// Text that the body contains.
    body: String,
    fault: Fault,
    left: usize,
}

/// A point on the way of a call, at which it stops for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before AWS sees a call.
    BeforeCall,
    /// After AWS has acted on a write, before its answer. After a read nothing is different.
    AfterWrite,
}

/// A call to be held: how many of its sort come first, and who is told.
struct Hold {
    moment: Moment,
    left: usize,
    held: oneshot::Sender<String>,
}

#[derive(Default)]
struct State {
    rules: Mutex<Vec<Rule>>,
    calls: AtomicUsize,
    /// Calls that were cut off before the simulator saw them.
    cut: AtomicUsize,
    /// Calls on their way to the simulator.
    under_way: AtomicUsize,
    made: Mutex<Vec<String>>,
    /// Times at which the calls came, in the order of their answers.
    times: Mutex<Vec<Instant>>,
    /// Times of the calls that were answered with a fault.
    refused: Mutex<Vec<Instant>>,
    last: Mutex<Option<Instant>>,
    hold: Mutex<Option<Hold>>,
    /// Calls that the simulators lack.
    plays: Plays,
    /// Actions that are granted, for calls that no simulator judges.
    granted: Mutex<Option<BTreeSet<String>>>,
}

impl State {
    /// Stops here for ever if this call is to be held at this moment.
    async fn pass(&self, moment: Moment, description: &str) {
        let held = {
            let mut hold = self.hold.lock().expect("a hold");
            match hold.as_mut() {
                Some(next) if next.moment == moment && next.left <= 1 => hold.take(),
                Some(next) if next.moment == moment => {
                    next.left -= 1;
                    None
                }
                _ => None,
            }
        };
        if let Some(hold) = held {
            let told = hold.held.send(description.to_owned());
            if told.is_ok() {
                std::future::pending::<()>().await;
            }
        }
    }
}

pub(crate) struct Proxy {
    pub(crate) address: String,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Starts a proxy in front of an address.
    pub(crate) async fn start(upstream: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(State::default());
        let (serving, upstream) = (state.clone(), upstream.to_owned());
        let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (state, upstream, client) = (serving.clone(), upstream.clone(), client.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let (state, upstream, client) = (state.clone(), upstream.clone(), client.clone());
                        forward(state, upstream, client, request)
                    });
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Self { address, state, task }
    }

    /// Injects a fault into the next calls whose description contains a text: `METHOD path target action`.
    pub(crate) fn inject(&self, matching: &str, fault: Fault, times: usize) {
        self.inject_for(matching, "", fault, times);
    }

    /// The same for calls whose body contains a text too.
    pub(crate) fn inject_for(&self, matching: &str, body: &str, fault: Fault, times: usize) {
        let rule = Rule { matching: matching.to_owned(), body: body.to_owned(), fault, left: times };
        self.state.rules.lock().expect("rules").push(rule);
    }

    pub(crate) fn clear(&self) {
        self.state.rules.lock().expect("rules").clear();
    }

    /// Holds a call for ever: the n-th from now that comes to a moment. The receiver gets its description.
    pub(crate) fn hold(&self, moment: Moment, number: usize) -> oneshot::Receiver<String> {
        let (held, receiver) = oneshot::channel();
        *self.state.hold.lock().expect("a hold") = Some(Hold { moment, left: number, held });
        receiver
    }

    /// Holds no call any more.
    pub(crate) fn hold_none(&self) {
        *self.state.hold.lock().expect("a hold") = None;
    }

    /// True if no call has come for a while.
    pub(crate) fn is_quiet(&self) -> bool {
        let last = *self.state.last.lock().expect("a time");
        last.is_none_or(|last| last.elapsed() > QUIET)
    }

    /// Waits until the simulator has answered all that it was sent, also what nobody waits for any more.
    pub(crate) async fn at_rest(&self) {
        while self.state.under_way.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Grants actions of calls that no simulator judges; all others of those are denied. `root` signs what is played.
    pub(crate) fn grant(&self, actions: BTreeSet<String>, root: &str) {
        *self.state.granted.lock().expect("actions") = Some(actions);
        *self.state.plays.root.lock().expect("a key") = Some(root.to_owned());
    }

    /// Returns the number of calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.state.calls.load(Ordering::SeqCst)
    }

    /// Returns the number of calls that were cut off so far.
    pub(crate) fn cut(&self) -> usize {
        self.state.cut.load(Ordering::SeqCst)
    }

    /// Returns the descriptions of the calls so far.
    pub(crate) fn made(&self) -> Vec<String> {
        self.state.made.lock().expect("calls").clone()
    }

    /// Returns how many calls have a description that contains a text, and the time from the first of them to the last.
    pub(crate) fn span_of(&self, matching: &str) -> (usize, Duration) {
        let (made, times) = (self.made(), self.state.times.lock().expect("times").clone());
        let all = made.iter().zip(times).filter(|(description, _)| description.contains(matching));
        let mut all: Vec<Instant> = all.map(|(_, time)| time).collect();
        all.sort();
        let span = all.last().zip(all.first()).map(|(last, first)| *last - *first);
        (all.len(), span.unwrap_or_default())
    }

    /// Returns the times between calls that were answered with a fault.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        let refused = self.state.refused.lock().expect("times");
        refused.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// Returns the calls so far that change something.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.made().into_iter().filter(|description| !is_read(description)).collect()
    }
}

fn describe(request: &Request<Bytes>) -> String {
    let target =
        request.headers().get("x-amz-target").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let body = String::from_utf8_lossy(request.body());
    let action = body.split('&').find_map(|pair| pair.strip_prefix("Action=")).unwrap_or_default().to_owned();
    format!("{} {} {target} {action}", request.method(), request.uri())
}

/// True if a call only reads.
fn is_read(description: &str) -> bool {
    let last = description.rsplit([' ', '.']).find(|part| !part.is_empty()).unwrap_or_default();
    description.starts_with("GET ")
        || description.starts_with("HEAD ")
        || ["Get", "List", "Describe", "AssumeRole"].iter().any(|verb| last.starts_with(verb))
}

fn answer(status: u16, code: &str) -> Response<Full<Bytes>> {
    answer_with(status, code, "injected")
}

fn answer_with(status: u16, code: &str, message: &str) -> Response<Full<Bytes>> {
    // Every protocol finds its own: a header, a body in JSON, one in XML.
    let body = format!(
        "<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
    );
    Response::builder()
        .status(status)
        .header("x-amzn-errortype", code)
        .body(Full::new(Bytes::from(body)))
        .expect("an answer")
}

type Forwarded = BoxFuture<'static, std::io::Result<Response<Full<Bytes>>>>;

fn forward(
    state: Arc<State>,
    upstream: String,
    client: Client<HttpConnector, Full<Bytes>>,
    request: Request<Incoming>,
) -> Forwarded {
    Box::pin(async move { forward_request(state, &upstream, &client, request).await })
}

async fn forward_request(
    state: Arc<State>,
    upstream: &str,
    client: &Client<HttpConnector, Full<Bytes>>,
    request: Request<Incoming>,
) -> std::io::Result<Response<Full<Bytes>>> {
    let other = std::io::Error::other::<Box<dyn std::error::Error + Send + Sync>>;
    let arrived = Instant::now();
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|error| other(error.into()))?.to_bytes();
    let description = describe(&Request::from_parts(parts.clone(), body.clone()));
    let fault = {
        let mut rules = state.rules.lock().expect("rules");
        let text = String::from_utf8_lossy(&body);
        let matches = |rule: &&mut Rule| description.contains(&rule.matching) && text.contains(&rule.body);
        let found = rules.iter_mut().filter(|rule| rule.left > 0).find(matches);
        found.map(|rule| {
            rule.left -= 1;
            rule.fault.clone()
        })
    };
    match &fault {
        Some(Fault::Delay(time)) => tokio::time::sleep(*time).await,
        Some(Fault::Answer(status, code)) => {
            state.refused.lock().expect("times").push(Instant::now());
            return Ok(answer(*status, code));
        }
        Some(Fault::Say(status, code, message)) => return Ok(answer_with(*status, code, message)),
        Some(Fault::CutBefore) => {
            state.cut.fetch_add(1, Ordering::SeqCst);
            return Err(std::io::Error::other("cut"));
        }
        Some(Fault::Pretend(body)) => {
            state.made.lock().expect("calls").push(description);
            state.times.lock().expect("times").push(arrived);
            state.calls.fetch_add(1, Ordering::SeqCst);
            return Ok(Response::new(Full::new(Bytes::from(*body))));
        }
        Some(Fault::CutAfterSend | Fault::Replace(..)) | None => {}
    }
    *state.last.lock().expect("a time") = Some(Instant::now());
    let action = plays::action_of(parts.method.as_str(), &parts.uri.to_string());
    let granted = state.granted.lock().expect("actions").clone();
    if granted.is_some_and(|granted| action.is_some_and(|action| !granted.contains(&action))) {
        return Ok(answer(403, "AccessDeniedException"));
    }
    state.pass(Moment::BeforeCall, &description).await;
    let mut body = body;
    match state.plays.play(parts.method.as_str(), &parts.uri.to_string(), &body) {
        Some(Played::Answer(status, text)) => {
            state.made.lock().expect("calls").push(description.clone());
            state.times.lock().expect("times").push(arrived);
            state.calls.fetch_add(1, Ordering::SeqCst);
            if !is_read(&description) {
                state.pass(Moment::AfterWrite, &description).await;
            }
            let lost = fault == Some(Fault::CutAfterSend);
            let answer = Response::builder().status(status).body(Full::new(Bytes::from(text)));
            return if lost { Err(std::io::Error::other("cut")) } else { Ok(answer.expect("an answer")) };
        }
        Some(Played::Instead(method, path, text)) => {
            parts.method = method.parse().expect("a method");
            parts.uri = path.parse().expect("a path");
            for header in ["content-length", "x-amz-content-sha256"] {
                parts.headers.remove(header);
            }
            let root = state.plays.root.lock().expect("a key").clone();
            if let Some(root) = root {
                // The signature was for another request. Root may do everything, however it signs.
                let scope = format!("Credential={root}/20200101/us-east-1/apigateway/aws4_request");
                let signed = format!("AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0");
                parts.headers.insert("authorization", signed.parse().expect("a header"));
                parts.headers.remove("x-amz-security-token");
            }
            body = Bytes::from(text);
        }
        None => {}
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = format!("{upstream}{path}").parse().expect("an address");
    let request = client.request(Request::from_parts(parts, Full::new(body)));
    // What was sent arrives, even if the caller is killed meanwhile.
    state.under_way.fetch_add(1, Ordering::SeqCst);
    let sending = state.clone();
    let sent = tokio::spawn(async move {
        let answered = async { request.await.map_err(|error| other(error.into())) }.await;
        let answered = match answered {
            Ok(answer) => {
                let (parts, body) = answer.into_parts();
                body.collect().await.map_err(|error| other(error.into())).map(|body| (parts, body.to_bytes()))
            }
            Err(error) => Err(error),
        };
        sending.under_way.fetch_sub(1, Ordering::SeqCst);
        answered
    });
    let (parts, body) = sent.await.map_err(|error| other(error.into()))??;
    state.made.lock().expect("calls").push(description.clone());
    state.times.lock().expect("times").push(arrived);
    state.calls.fetch_add(1, Ordering::SeqCst);
    if !is_read(&description) {
        state.pass(Moment::AfterWrite, &description).await;
    }
    match fault {
        Some(Fault::CutAfterSend) => Err(std::io::Error::other("cut")),
        Some(Fault::Replace(from, to)) => {
            let text = String::from_utf8_lossy(&body).replace(from, to);
            let mut parts = parts;
            parts.headers.remove("content-length");
            Ok(Response::from_parts(parts, Full::new(Bytes::from(text))))
        }
        _ => Ok(Response::from_parts(parts, Full::new(body))),
    }
}

//! Calls of AWS.
//!
//! Four protocols over JSON values, the signature, credentials, token buckets, errors. A kind calls an operation in one
//! line: its service, its name, its path or parameters. There is no code for an operation beside that line, which is
//! why this is not the SDK (decision 0092).

mod batch;
mod credentials;
mod error;
mod limits;
mod metrics;
mod service;
mod signature;
mod transport;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::Engine as _;
use serde_json::{Value, json};

use batch::Batches;
pub(crate) use batch::{BatchCall, BatchItem, BatchLimits};
pub(crate) use credentials::Environment;
use credentials::{Chain, Credentials, Found, StsCall};
pub(crate) use error::{ApiError, Class, Failure, Result, optional};
use limits::Limits;
pub(crate) use limits::Priority;
pub(crate) use metrics::CallMetrics;
use service::Protocol;
pub(crate) use service::{ACM, APIGATEWAYV2, DYNAMODB, IAM, LAMBDA, ROUTE53, S3, STS, Service};
use signature::{Signed, sign};
pub(crate) use signature::{encode, sha256_hex};
use transport::{Answer, Transport};

use crate::fields::to_query;

/// Settings of calls.
#[derive(Clone, Debug)]
pub(crate) struct ClientSettings {
    /// Endpoint of all services but STS, in place of AWS' own.
    pub(crate) endpoint: Option<String>,
    /// Endpoint of STS.
    pub(crate) identity_endpoint: Option<String>,
    pub(crate) timeout: Duration,
    /// Factor on the rates of AWS' documented limits; 0 is none.
    pub(crate) rate_scale: f64,
}

/// Counts of calls by service, operation and outcome: an error code, or `OK`.
pub(crate) type Calls = BTreeMap<(&'static str, &'static str, String), u64>;

/// Account and partition of each role, and of the process itself, at each endpoint of a namespace's own.
type Identities = HashMap<(Option<String>, Option<String>), (String, String)>;

/// The client of all accounts and regions.
#[derive(Debug)]
pub(crate) struct Client {
    settings: ClientSettings,
    environment: Environment,
    transport: Arc<Transport>,
    chain: Chain,
    limits: Limits,
    batches: Batches,
    calls: Mutex<Calls>,
    metrics: CallMetrics,
    identities: Mutex<Identities>,
}

/// Where calls of an object go, and as whom.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    client: Arc<Client>,
    pub(crate) region: String,
    pub(crate) account: String,
    pub(crate) partition: String,
    role: Option<String>,
    endpoint: Option<String>,
    user_agent: String,
    /// Calls are the Bridge's own, not a kind's of ACK.
    of_bridge: bool,
    priority: Priority,
}

/// A request of any protocol.
struct Call<'a> {
    service: &'static Service,
    operation: &'static str,
    method: &'static str,
    path: String,
    query: Vec<(&'a str, String)>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Client {
    pub(crate) fn new(
        settings: ClientSettings,
        environment: Environment,
        metrics: CallMetrics,
    ) -> Result<Arc<Self>> {
        let transport =
            Transport::new(settings.timeout).map_err(|error| Failure::Credentials(error.to_string()))?;
        let transport = Arc::new(transport);
        Ok(Arc::new(Self {
            limits: Limits::new(settings.rate_scale),
            chain: Chain::new(environment.clone(), transport.clone()),
            settings,
            environment,
            transport,
            batches: Batches::default(),
            calls: Mutex::default(),
            metrics,
            identities: Mutex::default(),
        }))
    }

    /// Returns the calls so far.
    pub(crate) fn calls(&self) -> Calls {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens a session. The account is asked for once for each role and endpoint.
    pub(crate) async fn session(
        self: &Arc<Self>,
        region: &str,
        role: Option<&str>,
        endpoint: Option<&str>,
        user_agent: String,
    ) -> Result<Session> {
        let mut session = Session {
            client: self.clone(),
            region: region.to_owned(),
            account: String::new(),
            partition: String::new(),
            role: role.map(str::to_owned),
            endpoint: endpoint.map(str::to_owned),
            user_agent,
            of_bridge: false,
            priority: Priority::Normal,
        };
        let known = (session.role.clone(), session.endpoint.clone());
        let identity = self.identities.lock().unwrap_or_else(PoisonError::into_inner).get(&known).cloned();
        let (account, partition) = match identity {
            Some(identity) => identity,
            None => {
                let answer = session.query(&STS, "GetCallerIdentity", json!({})).await?;
                let account = xml_text(&answer, "Account").unwrap_or_default();
                let arn = xml_text(&answer, "Arn").unwrap_or_default();
                let partition = arn.split(':').nth(1).unwrap_or("aws").to_owned();
                let mut identities = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
                identities.insert(known, (account.clone(), partition.clone()));
                (account, partition)
            }
        };
        (session.account, session.partition) = (account, partition);
        Ok(session)
    }

    /// Returns the endpoint of a service: the namespace's, the flags', the environment's, AWS' own.
    fn endpoint(&self, service: &Service, region: &str, own: Option<&str>) -> String {
        let flag = match service.name {
            "sts" => self.settings.identity_endpoint.as_ref().or(self.settings.endpoint.as_ref()),
            _ => self.settings.endpoint.as_ref(),
        };
        let variable = format!("AWS_ENDPOINT_URL_{}", service.variable);
        let variable =
            || self.environment.get(&variable).or_else(|| self.environment.get("AWS_ENDPOINT_URL"));
        if let Some(endpoint) = own.or(flag.map(String::as_str)).or_else(variable) {
            return endpoint.trim_end_matches('/').to_owned();
        }
        let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        match service.global {
            true => format!("https://{}.{suffix}", service.host),
            false => format!("https://{}.{region}.{suffix}", service.host),
        }
    }

    /// Counts a call. `error` has its code and HTTP status; 0 is no answer.
    fn count(&self, call: &Call<'_>, of_bridge: bool, error: Option<(&str, u16)>) {
        let (service, operation) = (call.service, call.operation);
        let outcome = error.map_or("OK", |(code, _)| code);
        self.metrics.observe(of_bridge, (service.name, operation), outcome, error.map(|(_, status)| status));
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls.entry((service.name, operation, outcome.to_owned())).or_default() += 1;
    }
}

impl Session {
    /// Returns the session for calls of the Bridge's own.
    pub(crate) fn for_bridge(self) -> Self {
        Self { of_bridge: true, ..self }
    }

    /// Returns the session for calls of a priority.
    pub(crate) fn with_priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// Calls a service with JSON bodies and an operation for each path.
    pub(crate) async fn rest(
        &self,
        service: &'static Service,
        operation: &'static str,
        method: &'static str,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value> {
        self.rest_query(service, operation, method, path, &[], body).await
    }

    /// Calls a service with JSON bodies and a query.
    pub(crate) async fn rest_query(
        &self,
        service: &'static Service,
        operation: &'static str,
        method: &'static str,
        path: &str,
        query: &[(&str, &str)],
        body: Option<Value>,
    ) -> Result<Value> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let headers = match body.is_empty() {
            true => Vec::new(),
            false => vec![("content-type".to_owned(), "application/json".to_owned())],
        };
        let query = query.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let call = Call { service, operation, method, path: path.to_owned(), query, headers, body };
        json_body(&self.send(call).await?)
    }

    /// Calls a service with JSON bodies and one path.
    pub(crate) async fn json(
        &self,
        service: &'static Service,
        operation: &'static str,
        body: Value,
    ) -> Result<Value> {
        let Protocol::Json { target, version } = service.protocol else {
            return Err(Failure::Terminal(format!("{} does not speak JSON", service.name)));
        };
        let headers = vec![
            ("content-type".to_owned(), format!("application/x-amz-json-{version}")),
            ("x-amz-target".to_owned(), format!("{target}.{operation}")),
        ];
        let body = body.to_string().into_bytes();
        let call = Call {
            service,
            operation,
            method: "POST",
            path: "/".to_owned(),
            query: Vec::new(),
            headers,
            body,
        };
        json_body(&self.send(call).await?)
    }

    /// Calls a service with form parameters and returns its XML.
    pub(crate) async fn query(
        &self,
        service: &'static Service,
        operation: &'static str,
        parameters: Value,
    ) -> Result<String> {
        let call = query_call(service, operation, &parameters)?;
        Ok(self.send(call).await?.text())
    }

    /// Calls a service with XML bodies and returns its XML.
    pub(crate) async fn xml(
        &self,
        service: &'static Service,
        operation: &'static str,
        method: &'static str,
        path: &str,
        query: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<String> {
        let headers = Vec::new();
        self.xml_with(service, operation, method, path, query, headers, body)
            .await
            .map(|answer| answer.text())
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of an HTTP request")]
    async fn xml_with(
        &self,
        service: &'static Service,
        operation: &'static str,
        method: &'static str,
        path: &str,
        query: &[(&str, &str)],
        mut headers: Vec<(String, String)>,
        body: Option<String>,
    ) -> Result<Answer> {
        let body = body.unwrap_or_default().into_bytes();
        if !body.is_empty() {
            if !headers.iter().any(|(name, _)| name == "content-type") {
                headers.push(("content-type".to_owned(), "application/xml".to_owned()));
            }
            if service.name == "s3" {
                let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &body);
                let hash = base64::engine::general_purpose::STANDARD.encode(hash.as_ref());
                headers.push(("x-amz-checksum-sha256".to_owned(), hash));
            }
        }
        let query = query.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.send(Call { service, operation, method, path: path.to_owned(), query, headers, body }).await
    }

    /// Calls with an item, together with the items of others that wait for a call of the same `key`.
    pub(crate) async fn batched(
        &self,
        key: &str,
        limits: BatchLimits,
        item: BatchItem,
        call: BatchCall<'_>,
    ) -> Result<String> {
        // Calls of one key are made with the session of any of them.
        let Self { account, role, endpoint, of_bridge, .. } = self;
        let key = format!("{account} {role:?} {endpoint:?} {of_bridge} {key}");
        self.client.batches.call(key, limits, item, call).await
    }

    /// Calls a service with XML bodies and headers of its own. Returns a header of the answer.
    pub(crate) async fn xml_header(
        &self,
        service: &'static Service,
        operation: &'static str,
        (method, path, query): (&'static str, &str, &[(&str, &str)]),
        headers: Vec<(String, String)>,
        body: Option<String>,
        desired: &str,
    ) -> Result<Option<String>> {
        let answer = self.xml_with(service, operation, method, path, query, headers, body).await?;
        Ok(answer.header(desired).map(str::to_owned))
    }

    /// Returns the credentials of a role, or of the process itself. Of several callers one asks for them.
    async fn credentials(&self, role: Option<&str>) -> Result<Credentials> {
        let chain = &self.client.chain;
        if let Some(cached) = chain.cached(role).await {
            return Ok(cached);
        }
        let _turn = chain.turn(role).await;
        if let Some(cached) = chain.cached(role).await {
            return Ok(cached);
        }
        let found = match role {
            Some(role) => {
                let parameters = json!({"RoleArn": role, "RoleSessionName": "orlop-aws"});
                let signer = Some(Box::pin(self.credentials(None)).await?);
                self.call_sts(StsCall { operation: "AssumeRole", parameters, signer }).await?
            }
            None => match chain.find().await? {
                Found::Credentials(credentials) => credentials,
                Found::Call(call) => self.call_sts(call).await?,
            },
        };
        chain.cache(role, &found).await;
        Ok(found)
    }

    async fn call_sts(&self, call: StsCall) -> Result<Credentials> {
        let request = query_call(&STS, call.operation, &call.parameters)?;
        let answer = self.send_as(&request, call.signer.as_ref()).await?.text();
        let text = |name: &str| xml_text(&answer, name);
        let (key, secret, token, expires) =
            (text("AccessKeyId"), text("SecretAccessKey"), text("SessionToken"), text("Expiration"));
        Credentials::from_answer(key.as_deref(), secret.as_deref(), token.as_deref(), expires.as_deref())
            .ok_or_else(|| Failure::Credentials(format!("{} answered without credentials", call.operation)))
    }

    /// Sends a signed request. A read that fails for AWS' own reasons is tried twice; the rest is for the next pass.
    async fn send(&self, call: Call<'_>) -> Result<Answer> {
        let credentials = self.credentials(self.role.as_deref()).await?;
        let first = self.send_as(&call, Some(&credentials)).await;
        let read = ["Get", "List", "Describe", "Head"].iter().any(|verb| call.operation.starts_with(verb));
        match first {
            Err(failure) if read && (failure.is_unreachable() || failure.is_throttled()) => {
                let wait = failure.retry_after().unwrap_or(Duration::from_millis(200));
                tokio::time::sleep(wait.min(Duration::from_secs(2))).await;
                self.send_as(&call, Some(&credentials)).await
            }
            other => other,
        }
    }

    async fn send_as(&self, call: &Call<'_>, signer: Option<&Credentials>) -> Result<Answer> {
        let client = &self.client;
        let (service, operation) = (call.service, call.operation);
        client.limits.acquire(&self.account, &self.region, service, operation, self.priority).await;
        let endpoint = client.endpoint(call.service, &self.region, self.endpoint.as_deref());
        let host = endpoint.split_once("://").map_or(endpoint.as_str(), |(_, host)| host).to_owned();
        let query: Vec<String> =
            call.query.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        let query = query.join("&");
        let region = if call.service.global { "us-east-1" } else { &self.region };
        let mut headers = call.headers.clone();
        headers.push(("host".to_owned(), host));
        let mut signed = Signed {
            method: call.method,
            path: &call.path,
            query: &query,
            headers,
            body: &call.body,
            region,
            service: call.service.signing,
        };
        if let Some(signer) = signer {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            sign(&mut signed, signer, i64::try_from(now.as_secs()).unwrap_or_default());
        }
        let mut headers = signed.headers;
        headers.push(("user-agent".to_owned(), self.user_agent.clone()));
        let separator = if query.is_empty() { "" } else { "?" };
        let address = format!("{endpoint}{}{separator}{query}", call.path);
        let sent = client.transport.send(call.method, &address, headers, call.body.clone()).await;
        let answer = sent.map_err(|cause| {
            client.count(call, self.of_bridge, Some(("Transport", 0)));
            Failure::Transport { service: call.service.id, operation: call.operation, cause }
        })?;
        if (200..300).contains(&answer.status) {
            client.count(call, self.of_bridge, None);
            return Ok(answer);
        }
        let error = api_error(call, &answer);
        client.count(call, self.of_bridge, Some((&error.code, error.status)));
        tracing::debug!(
            service = error.service,
            operation = error.operation,
            status = error.status,
            code = error.code,
            request_id = error.request_id,
            "AWS refused"
        );
        Err(Failure::Api(Box::new(error)))
    }
}

fn query_call<'a>(
    service: &'static Service,
    operation: &'static str,
    parameters: &Value,
) -> Result<Call<'a>> {
    let Protocol::Query { version } = service.protocol else {
        return Err(Failure::Terminal(format!("{} has no query protocol", service.name)));
    };
    let mut pairs =
        vec![("Action".to_owned(), operation.to_owned()), ("Version".to_owned(), version.to_owned())];
    to_query("", parameters, &mut pairs);
    let body: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    let headers =
        vec![("content-type".to_owned(), "application/x-www-form-urlencoded; charset=utf-8".to_owned())];
    let body = body.join("&").into_bytes();
    Ok(Call { service, operation, method: "POST", path: "/".to_owned(), query: Vec::new(), headers, body })
}

fn json_body(answer: &Answer) -> Result<Value> {
    if answer.body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&answer.body)
        .map_err(|error| Failure::Recoverable(format!("AWS answered with what is no JSON: {error}")))
}

/// Parses an answer of a service that speaks XML.
pub(crate) fn parse_xml(text: &str) -> Result<roxmltree::Document<'_>> {
    roxmltree::Document::parse(text)
        .map_err(|error| Failure::Recoverable(format!("AWS answered with bad XML: {error}")))
}

/// Returns the text of the first element of a name, wherever it is.
pub(crate) fn xml_text(document: &str, name: &str) -> Option<String> {
    let document = roxmltree::Document::parse(document).ok()?;
    let found = document.descendants().find(|node| node.tag_name().name() == name)?;
    Some(found.text().unwrap_or_default().to_owned())
}

/// Reads the error of an answer in whichever form its protocol has.
fn api_error(call: &Call<'_>, answer: &Answer) -> ApiError {
    let text = answer.text();
    let (mut code, mut message) = match serde_json::from_str::<Value>(&text) {
        Ok(body) => {
            let field = |names: &[&str]| {
                names.iter().find_map(|name| body.get(*name).and_then(Value::as_str)).map(str::to_owned)
            };
            (field(&["__type", "code", "Code"]), field(&["message", "Message", "errorMessage"]))
        }
        Err(_) => (xml_text(&text, "Code"), xml_text(&text, "Message")),
    };
    if let Some(header) = answer.header("x-amzn-errortype") {
        code = Some(header.to_owned());
    }
    // `namespace#Code:http://…` is `Code`.
    let code = code.map(|code| {
        let code = code.rsplit('#').next().unwrap_or_default();
        code.split(':').next().unwrap_or_default().to_owned()
    });
    let by_status = match answer.status {
        403 => "AccessDenied".to_owned(),
        404 => "NotFound".to_owned(),
        429 => "TooManyRequestsException".to_owned(),
        status => format!("HTTP{status}"),
    };
    if message.is_none() && !text.trim_start().starts_with(['{', '<']) {
        message = text.lines().next().map(|line| line.chars().take(200).collect());
    }
    let retry_after =
        answer.header("x-amz-retry-after").and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
    let retry_after = retry_after.or_else(|| {
        answer.header("retry-after").and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs)
    });
    ApiError {
        service: call.service.id,
        operation: call.operation,
        status: answer.status,
        code: code.filter(|code| !code.is_empty()).unwrap_or(by_status),
        message: message.unwrap_or_default(),
        request_id: answer
            .header("x-amzn-requestid")
            .or_else(|| answer.header("x-amz-request-id"))
            .unwrap_or_default()
            .to_owned(),
        retry_after,
    }
}

/// Joins the segments of a path, each percent-encoded.
pub(crate) fn path(segments: &[&str]) -> String {
    segments.iter().map(|segment| format!("/{}", encode(segment))).collect()
}

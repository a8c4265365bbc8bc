//! The JSON gateway: every method as `POST /v3/…` with JSON bodies.
//!
//! Bodies are in protobuf's JSON form with the fields' own names: 64-bit integers are text, bytes are base64. A request
//! is encoded, handed to the gRPC service in process, and its response decoded, by the descriptors of the `.proto`
//! files. Streams are JSON values one after the other; each response is in a `result`.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::LazyLock,
    task::{Context, Poll},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, ORIGIN},
};
use http_body::{Body, Frame};
use prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions,
};
use serde_json::{Value, json};
use tonic::{Code, Status, service::Routes};
use tower::Service;

/// Path that all methods are below.
pub(crate) const PREFIX: &str = "/v3/";

/// Methods by path, besides those of [`alias`].
const METHODS: &[(&str, &str, &str)] = &[
    ("/v3/kv/range", "etcdserverpb.KV", "Range"),
    ("/v3/kv/put", "etcdserverpb.KV", "Put"),
    ("/v3/kv/deleterange", "etcdserverpb.KV", "DeleteRange"),
    ("/v3/kv/txn", "etcdserverpb.KV", "Txn"),
    ("/v3/kv/compaction", "etcdserverpb.KV", "Compact"),
    ("/v3/watch", "etcdserverpb.Watch", "Watch"),
    ("/v3/lease/grant", "etcdserverpb.Lease", "LeaseGrant"),
    ("/v3/lease/revoke", "etcdserverpb.Lease", "LeaseRevoke"),
    ("/v3/lease/keepalive", "etcdserverpb.Lease", "LeaseKeepAlive"),
    ("/v3/lease/timetolive", "etcdserverpb.Lease", "LeaseTimeToLive"),
    ("/v3/lease/leases", "etcdserverpb.Lease", "LeaseLeases"),
    ("/v3/cluster/member/add", "etcdserverpb.Cluster", "MemberAdd"),
    ("/v3/cluster/member/remove", "etcdserverpb.Cluster", "MemberRemove"),
    ("/v3/cluster/member/update", "etcdserverpb.Cluster", "MemberUpdate"),
    ("/v3/cluster/member/list", "etcdserverpb.Cluster", "MemberList"),
    ("/v3/cluster/member/promote", "etcdserverpb.Cluster", "MemberPromote"),
    ("/v3/maintenance/alarm", "etcdserverpb.Maintenance", "Alarm"),
    ("/v3/maintenance/status", "etcdserverpb.Maintenance", "Status"),
    ("/v3/maintenance/defragment", "etcdserverpb.Maintenance", "Defragment"),
    ("/v3/maintenance/hash", "etcdserverpb.Maintenance", "HashKV"),
    ("/v3/maintenance/snapshot", "etcdserverpb.Maintenance", "Snapshot"),
    ("/v3/maintenance/transfer-leadership", "etcdserverpb.Maintenance", "MoveLeader"),
    ("/v3/auth/enable", "etcdserverpb.Auth", "AuthEnable"),
    ("/v3/auth/disable", "etcdserverpb.Auth", "AuthDisable"),
    ("/v3/auth/status", "etcdserverpb.Auth", "AuthStatus"),
    ("/v3/auth/authenticate", "etcdserverpb.Auth", "Authenticate"),
    ("/v3/auth/user/add", "etcdserverpb.Auth", "UserAdd"),
    ("/v3/auth/user/get", "etcdserverpb.Auth", "UserGet"),
    ("/v3/auth/user/list", "etcdserverpb.Auth", "UserList"),
    ("/v3/auth/user/delete", "etcdserverpb.Auth", "UserDelete"),
    ("/v3/auth/user/changepw", "etcdserverpb.Auth", "UserChangePassword"),
    ("/v3/auth/user/grant", "etcdserverpb.Auth", "UserGrantRole"),
    ("/v3/auth/user/revoke", "etcdserverpb.Auth", "UserRevokeRole"),
    ("/v3/auth/role/add", "etcdserverpb.Auth", "RoleAdd"),
    ("/v3/auth/role/get", "etcdserverpb.Auth", "RoleGet"),
    ("/v3/auth/role/list", "etcdserverpb.Auth", "RoleList"),
    ("/v3/auth/role/delete", "etcdserverpb.Auth", "RoleDelete"),
    ("/v3/auth/role/grant", "etcdserverpb.Auth", "RoleGrantPermission"),
    ("/v3/auth/role/revoke", "etcdserverpb.Auth", "RoleRevokePermission"),
    ("/v3/lock/lock", "v3lockpb.Lock", "Lock"),
    ("/v3/lock/unlock", "v3lockpb.Lock", "Unlock"),
    ("/v3/election/campaign", "v3electionpb.Election", "Campaign"),
    ("/v3/election/proclaim", "v3electionpb.Election", "Proclaim"),
    ("/v3/election/leader", "v3electionpb.Election", "Leader"),
    ("/v3/election/observe", "v3electionpb.Election", "Observe"),
    ("/v3/election/resign", "v3electionpb.Election", "Resign"),
];

/// Returns the path that another path of the same method stands for: leases were once below `kv`.
fn alias(path: &str) -> Option<String> {
    let lease = path.strip_prefix("/v3/kv/lease/")?;
    Some(format!("/v3/lease/{lease}"))
}

/// A method of a service.
struct Transcoder {
    /// Path of the gRPC method.
    path: String,
    input: MessageDescriptor,
    output: MessageDescriptor,
    streams_requests: bool,
    streams_responses: bool,
}

static TRANSCODERS: LazyLock<HashMap<&'static str, Transcoder>> = LazyLock::new(|| {
    // The descriptors are committed with the code; a test decodes them.
    let Ok(pool) = DescriptorPool::decode(&include_bytes!("generated/etcd.bin")[..]) else {
        return HashMap::new();
    };
    let transcoder = |(path, service, method): &(&'static str, &str, &str)| {
        let found = pool.get_service_by_name(service)?.methods().find(|found| found.name() == *method)?;
        let transcoder = Transcoder {
            path: format!("/{service}/{method}"),
            input: found.input(),
            output: found.output(),
            streams_requests: found.is_client_streaming(),
            streams_responses: found.is_server_streaming(),
        };
        Some((*path, transcoder))
    };
    METHODS.iter().filter_map(transcoder).collect()
});

/// Answers a request of the gateway. `limit` is the size of the largest request.
pub(crate) async fn call<B>(
    mut routes: Routes,
    request: Request<B>,
    limit: usize,
) -> Response<tonic::body::Body>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display + Send,
{
    let path = request.uri().path();
    let path = alias(path).unwrap_or_else(|| path.to_owned());
    let Some(transcoder) = TRANSCODERS.get(path.as_str()) else {
        return failure(&Status::new(Code::NotFound, "Not Found"));
    };
    if request.method() != Method::POST {
        return failure(&Status::new(Code::Unimplemented, "Method Not Allowed"));
    }
    if request.headers().contains_key(ORIGIN) {
        // Any page could write to the server of whoever looks at it, and read it under a name that leads there.
        return failure(&Status::permission_denied("orlop: requests of web pages are refused"));
    }
    let body = request.into_body();
    let body = match transcoder.streams_requests {
        true => tonic::body::Body::new(FrameBody(Box::pin(requests(transcoder, body, limit)))),
        false => match unary_request(transcoder, body, limit).await {
            Ok(frame) => tonic::body::Body::new(FrameBody(Box::pin(stream::iter([Ok(frame)])))),
            Err(status) => return failure(&status),
        },
    };
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    let Ok(uri) = transcoder.path.parse() else { return failure(&Status::internal("orlop: no such path")) };
    *request.uri_mut() = uri;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let response = match routes.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (head, body) = response.into_parts();
    let mut messages =
        Messages { body, buffer: BytesMut::new(), status: Status::from_header_map(&head.headers) };
    if transcoder.streams_responses {
        return stream_response(transcoder, messages);
    }
    let message = match messages.next().await {
        Ok(Some(message)) => json_of(transcoder, message),
        Ok(None) => Err(Status::internal("orlop: a response without a message")),
        Err(status) => Err(status),
    };
    match message {
        Ok(message) => respond(StatusCode::OK, tonic::body::Body::new(full(message))),
        Err(status) => failure(&status),
    }
}

// --- requests ---

async fn unary_request<B>(transcoder: &Transcoder, mut body: B, limit: usize) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut json = BytesMut::new();
    while let Some(data) = next_data(&mut body).await? {
        json.extend_from_slice(&data);
        check_size(json.len(), limit)?;
    }
    // Without a body, every field has its default.
    if json.iter().all(u8::is_ascii_whitespace) {
        json = BytesMut::from("{}");
    }
    let value = serde_json::from_slice(&json).map_err(|error| Status::invalid_argument(error.to_string()))?;
    frame(transcoder, value)
}

/// Returns the frames of a stream of JSON values.
fn requests<B>(
    transcoder: &'static Transcoder,
    body: B,
    limit: usize,
) -> impl Stream<Item = Result<Bytes, Status>> + Send
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::fmt::Display + Send,
{
    stream::try_unfold((body, BytesMut::new()), move |(mut body, mut buffer)| async move {
        loop {
            let mut values = serde_json::Deserializer::from_slice(&buffer).into_iter::<Value>();
            match values.next() {
                Some(Ok(value)) => {
                    let read = values.byte_offset();
                    buffer.advance(read);
                    return Ok(Some((frame(transcoder, value)?, (body, buffer))));
                }
                Some(Err(error)) if !error.is_eof() => {
                    return Err(Status::invalid_argument(error.to_string()));
                }
                _ => {}
            }
            check_size(buffer.len(), limit)?;
            match next_data(&mut body).await? {
                Some(data) => buffer.extend_from_slice(&data),
                None => return Ok(None),
            }
        }
    })
}

fn check_size(bytes: usize, limit: usize) -> Result<(), Status> {
    // Base64 takes a third more.
    if bytes > limit.saturating_mul(2) { Err(crate::errors::REQUEST_TOO_LARGE.into()) } else { Ok(()) }
}

async fn next_data<B>(body: &mut B) -> Result<Option<Bytes>, Status>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        match frame.transpose().map_err(|error| Status::cancelled(error.to_string()))? {
            None => return Ok(None),
            Some(frame) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Encodes a JSON value as a gRPC message with its prefix.
fn frame(transcoder: &Transcoder, value: Value) -> Result<Bytes, Status> {
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(transcoder.input.clone(), value, &options)
        .map_err(|error| Status::invalid_argument(error.to_string()))?;
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len()).map_err(|_| crate::errors::REQUEST_TOO_LARGE)?);
    message.encode_raw(&mut frame);
    Ok(frame.freeze())
}

/// A body of frames.
struct FrameBody(Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>);

impl Body for FrameBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.get_mut().0.poll_next_unpin(cx).map(|item| item.map(|item| item.map(Frame::data)))
    }
}

// --- responses ---

/// The messages of a gRPC response.
struct Messages {
    body: tonic::body::Body,
    buffer: BytesMut,
    /// Status that came with the headers, or with the trailers.
    status: Option<Status>,
}

impl Messages {
    /// Returns the next message; `None` after the last one.
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(prefix) = self.buffer.first_chunk::<5>() {
                let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
                if self.buffer.len() >= 5 + length {
                    self.buffer.advance(5);
                    return Ok(Some(self.buffer.split_to(length).freeze()));
                }
            }
            let frame = std::future::poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
            match frame {
                Some(Err(status)) => return Err(status),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.buffer.extend_from_slice(&data),
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_else(|_| HeaderMap::new());
                        self.status = Status::from_header_map(&trailers);
                    }
                },
                None => {
                    return match self.status.take() {
                        Some(status) if status.code() != Code::Ok => Err(status),
                        _ => Ok(None),
                    };
                }
            }
        }
    }
}

/// Returns the JSON of a message, its fields in the order of their numbers.
fn json_of(transcoder: &Transcoder, message: Bytes) -> Result<String, Status> {
    let failed = |why: String| Status::internal(why);
    let decoded = DynamicMessage::decode(transcoder.output.clone(), message)
        .map_err(|error| failed(error.to_string()))?;
    let options = SerializeOptions::new().use_proto_field_name(true);
    let mut json = serde_json::Serializer::new(Vec::new());
    decoded.serialize_with_options(&mut json, &options).map_err(|error| failed(error.to_string()))?;
    String::from_utf8(json.into_inner()).map_err(|error| failed(error.to_string()))
}

fn stream_response(transcoder: &'static Transcoder, messages: Messages) -> Response<tonic::body::Body> {
    let lines = stream::unfold(Some(messages), move |messages| async move {
        let mut messages = messages?;
        let message = match messages.next().await {
            Ok(None) => return None,
            Ok(Some(message)) => json_of(transcoder, message),
            Err(status) => Err(status),
        };
        let (line, next) = match message {
            Ok(message) => (format!("{{\"result\":{message}}}"), Some(messages)),
            Err(status) => (json!({"error": stream_error(&status)}).to_string(), None),
        };
        Some((Ok(Bytes::from(format!("{line}\n"))), next))
    });
    respond(StatusCode::OK, tonic::body::Body::new(FrameBody(Box::pin(lines))))
}

fn full(text: String) -> FrameBody {
    FrameBody(Box::pin(stream::iter([Ok(Bytes::from(text))])))
}

fn respond(code: StatusCode, body: tonic::body::Body) -> Response<tonic::body::Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns an error. Clients of old versions look for `error`.
fn failure(status: &Status) -> Response<tonic::body::Body> {
    let (message, code) = (Value::from(status.message()), i32::from(status.code()));
    let body = format!("{{\"code\":{code},\"message\":{message},\"error\":{message}}}");
    respond(http_code(status.code()), tonic::body::Body::new(full(body)))
}

fn stream_error(status: &Status) -> Value {
    let (grpc_code, http_code) = (i32::from(status.code()), http_code(status.code()));
    json!({
        "grpc_code": grpc_code, "http_code": http_code.as_u16(), "message": status.message(),
        "http_status": http_code.canonical_reason().unwrap_or_default(), "code": grpc_code,
    })
}

fn http_code(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_a_method() {
        let missing: Vec<_> = METHODS.iter().filter(|(path, ..)| !TRANSCODERS.contains_key(path)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

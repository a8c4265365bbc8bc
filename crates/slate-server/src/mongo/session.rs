//! A connection's session: authentication, then commands.

use std::time::Instant;

use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};

use super::{
    commands::{self, Reply},
    error::{CommandError, Result},
    message::{MESSAGE_LEN_MAX, Message},
};
use crate::{
    connection::UNAUTHENTICATED_LEN_MAX, context::SharedContext, metrics::RequestLabels, scram::Conversation,
};

/// Newest wire version whose commands are understood: MongoDB 7.0.
const WIRE_VERSION: i32 = 21;

#[derive(Debug)]
pub(super) struct Session {
    context: SharedContext,
    authenticated: bool,
    conversation: Option<Conversation>,
}

impl Session {
    pub(super) fn new(context: SharedContext) -> Self {
        Self { authenticated: context.credentials.is_none(), context, conversation: None }
    }

    /// Returns the largest message that the client may send.
    pub(super) fn message_len_max(&self) -> usize {
        if self.authenticated { MESSAGE_LEN_MAX } else { UNAUTHENTICATED_LEN_MAX }
    }

    /// Runs a message and returns the bytes of its answer, if one is wanted.
    pub(super) fn run(&mut self, message: Message) -> Option<Vec<u8>> {
        let began = Instant::now();
        let (id, legacy) = message.reply_header();
        let more_to_come = message.more_to_come;
        let name = commands::metric_name(message.command());
        let reply = self.dispatch(message);
        let outcome = if reply.is_ok() { "ok" } else { "error" };
        let labels = RequestLabels { protocol: "mongo", request: name, outcome };
        self.context.metrics.requests.get_or_create(&labels).inc();
        self.context.metrics.seconds.observe(began.elapsed().as_secs_f64());
        if more_to_come {
            return None;
        }
        let body = match reply {
            Ok(Reply::Document(mut document)) => {
                document.insert("ok", 1.0);
                document.to_vec().unwrap_or_default()
            }
            Ok(Reply::Raw(bytes)) => bytes,
            Err(error) => error.to_document().to_vec().unwrap_or_default(),
        };
        Some(Message::answer(id, legacy, &body))
    }

    fn dispatch(&mut self, message: Message) -> Result<Reply> {
        let body = &message.body;
        match message.command() {
            "hello" | "isMaster" | "ismaster" => Ok(Reply::Document(self.hello(body))),
            "saslStart" => self.sasl_start(body),
            "saslContinue" => self.sasl_continue(body),
            "logout" => {
                self.authenticated = self.context.credentials.is_none();
                Ok(Reply::Document(Document::new()))
            }
            "ping" | "buildInfo" | "buildinfo" | "endSessions" => commands::run(&self.context, message),
            name if !self.authenticated => {
                Err(CommandError::new(13, "Unauthorized", format!("Command {name} requires authentication")))
            }
            _ => commands::run(&self.context, message),
        }
    }

    fn hello(&self, body: &Document) -> Document {
        let mut reply = doc! {
            "helloOk": true,
            "ismaster": true,
            "isWritablePrimary": true,
            "maxBsonObjectSize": slate::document::DOCUMENT_LEN_MAX as i32,
            "maxMessageSizeBytes": MESSAGE_LEN_MAX as i32,
            "maxWriteBatchSize": commands::STATEMENTS_MAX as i32,
            "localTime": bson::DateTime::now(),
            "logicalSessionTimeoutMinutes": 30,
            "connectionId": 1,
            "minWireVersion": 0,
            "maxWireVersion": WIRE_VERSION,
            "readOnly": false,
        };
        if self.context.credentials.is_some() && body.contains_key("saslSupportedMechs") {
            reply.insert("saslSupportedMechs", vec!["SCRAM-SHA-256"]);
        }
        reply
    }

    fn sasl_start(&mut self, body: &Document) -> Result<Reply> {
        let credentials = self.context.credentials.as_ref().ok_or_else(|| failed("authentication is off"))?;
        if body.get_str("mechanism").ok() != Some("SCRAM-SHA-256") {
            return Err(CommandError::new(334, "MechanismUnavailable", "only SCRAM-SHA-256 is supported"));
        }
        let (conversation, reply) = Conversation::start(credentials, payload(body)?).map_err(failed)?;
        self.conversation = Some(conversation);
        Ok(sasl_reply(&reply, false))
    }

    fn sasl_continue(&mut self, body: &Document) -> Result<Reply> {
        let payload = payload(body)?;
        if self.authenticated && payload.is_empty() {
            // The empty exchange with which some drivers end.
            return Ok(sasl_reply("", true));
        }
        let credentials = self.context.credentials.as_ref().ok_or_else(|| failed("authentication is off"))?;
        let conversation = self.conversation.take().ok_or_else(|| failed("no conversation"))?;
        let signature = conversation.finish(credentials, payload).map_err(failed)?;
        self.authenticated = true;
        Ok(sasl_reply(&signature, true))
    }
}

fn failed(message: impl Into<String>) -> CommandError {
    CommandError::new(18, "AuthenticationFailed", message)
}

fn payload(body: &Document) -> Result<&[u8]> {
    match body.get("payload") {
        Some(Bson::Binary(binary)) => Ok(&binary.bytes),
        Some(Bson::String(text)) => Ok(text.as_bytes()),
        _ => Err(failed("no payload")),
    }
}

fn sasl_reply(payload: &str, done: bool) -> Reply {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: payload.as_bytes().to_vec() };
    Reply::Document(doc! { "conversationId": 1, "done": done, "payload": payload })
}

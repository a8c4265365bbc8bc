//! Clients of admission webhooks.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use orlop_admission::webhook::{CallFailure, WebhookClient, WebhookClients};
use orlop_crd::WebhookTarget;

use crate::{storage::ObjectStore, webhook::Webhook};

/// Maximum bytes of a response: a patch of a large object, with room to spare.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Clients that are kept, as in Kubernetes.
const CLIENTS_MAX: usize = 200;

/// Clients of a cluster's admission webhooks, the most recently used last. Webhooks with one target share its
/// connections, and a change of a configuration that is not of the target keeps them.
#[derive(Debug)]
pub(crate) struct AdmissionClients {
    objects: Arc<ObjectStore>,
    clients: Mutex<Vec<Arc<AdmissionClient>>>,
}

impl AdmissionClients {
    pub(crate) fn new(objects: Arc<ObjectStore>) -> Self {
        Self { objects, clients: Mutex::default() }
    }
}

impl WebhookClients for AdmissionClients {
    fn client(&self, target: &WebhookTarget, ca_bundle: &[u8]) -> Arc<dyn WebhookClient> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let known =
            clients.iter().position(|client| client.target == *target && client.ca_bundle == ca_bundle);
        let client = match known {
            Some(place) => clients.remove(place),
            None => Arc::new(AdmissionClient {
                objects: self.objects.clone(),
                webhook: Webhook::new(target.clone(), ca_bundle.to_vec(), ANSWER_BYTES_MAX),
                target: target.clone(),
                ca_bundle: ca_bundle.to_vec(),
            }),
        };
        if clients.len() == CLIENTS_MAX {
            clients.remove(0);
        }
        clients.push(client.clone());
        client
    }
}

/// A client of one webhook.
#[derive(Debug)]
struct AdmissionClient {
    objects: Arc<ObjectStore>,
    webhook: Webhook,
    target: WebhookTarget,
    ca_bundle: Vec<u8>,
}

#[async_trait]
impl WebhookClient for AdmissionClient {
    async fn post(&self, body: Bytes, timeout: Duration) -> Result<Bytes, CallFailure> {
        let sent = self.webhook.send(&self.objects, body, timeout).await;
        let answer = sent.map_err(|message| CallFailure { message, code: 503 })?;
        let code = answer.status.as_u16();
        answer.check().map_err(|message| CallFailure { message, code })?;
        Ok(answer.body)
    }
}

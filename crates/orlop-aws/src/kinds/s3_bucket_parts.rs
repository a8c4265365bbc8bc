//! Sub-resources of a bucket.

use serde_json::{Value, json};

use crate::{
    client::{Result, S3, Session, xml_text},
    fields::{Field, Type, compare, from_xml, to_xml},
};

/// A sub-resource: a field of the spec, and the calls that read, write and remove it.
pub(super) struct Part {
    pub(super) field: &'static str,
    /// Query parameter that addresses it.
    pub(super) query: &'static str,
    pub(super) get: &'static str,
    pub(super) put: &'static str,
    /// Without one, the default is put in its place.
    pub(super) delete: Option<&'static str>,
    /// Root element of the body.
    pub(super) root: &'static str,
    /// Error code for an absent part.
    pub(super) absent: &'static str,
}

const fn part(
    field: &'static str,
    query: &'static str,
    (get, put, delete): (&'static str, &'static str, Option<&'static str>),
    root: &'static str,
    absent: &'static str,
) -> Part {
    Part { field, query, get, put, delete, root, absent }
}

/// In the order in which they are written.
pub(super) static PARTS: &[Part] = &[
    part("abac", "abac", ("GetBucketAbac", "PutBucketAbac", None), "AbacStatus", "MethodNotAllowed"),
    part(
        "accelerate",
        "accelerate",
        ("GetBucketAccelerateConfiguration", "PutBucketAccelerateConfiguration", None),
        "AccelerateConfiguration",
        "MethodNotAllowed",
    ),
    part(
        "cors",
        "cors",
        ("GetBucketCors", "PutBucketCors", Some("DeleteBucketCors")),
        "CORSConfiguration",
        "NoSuchCORSConfiguration",
    ),
    part(
        "encryption",
        "encryption",
        ("GetBucketEncryption", "PutBucketEncryption", Some("DeleteBucketEncryption")),
        "ServerSideEncryptionConfiguration",
        "ServerSideEncryptionConfigurationNotFoundError",
    ),
    part(
        "lifecycle",
        "lifecycle",
        ("GetBucketLifecycleConfiguration", "PutBucketLifecycleConfiguration", Some("DeleteBucketLifecycle")),
        "LifecycleConfiguration",
        "NoSuchLifecycleConfiguration",
    ),
    part("logging", "logging", ("GetBucketLogging", "PutBucketLogging", None), "BucketLoggingStatus", ""),
    part(
        "notification",
        "notification",
        ("GetBucketNotificationConfiguration", "PutBucketNotificationConfiguration", None),
        "NotificationConfiguration",
        "",
    ),
    part(
        "ownershipControls",
        "ownershipControls",
        ("GetBucketOwnershipControls", "PutBucketOwnershipControls", Some("DeleteBucketOwnershipControls")),
        "OwnershipControls",
        "OwnershipControlsNotFoundError",
    ),
    part(
        "publicAccessBlock",
        "publicAccessBlock",
        ("GetPublicAccessBlock", "PutPublicAccessBlock", Some("DeletePublicAccessBlock")),
        "PublicAccessBlockConfiguration",
        "NoSuchPublicAccessBlockConfiguration",
    ),
    part(
        "requestPayment",
        "requestPayment",
        ("GetBucketRequestPayment", "PutBucketRequestPayment", None),
        "RequestPaymentConfiguration",
        "",
    ),
    part(
        "tagging",
        "tagging",
        ("GetBucketTagging", "PutBucketTagging", Some("DeleteBucketTagging")),
        "Tagging",
        "NoSuchTagSet",
    ),
    part(
        "website",
        "website",
        ("GetBucketWebsite", "PutBucketWebsite", Some("DeleteBucketWebsite")),
        "WebsiteConfiguration",
        "NoSuchWebsiteConfiguration",
    ),
    part(
        "versioning",
        "versioning",
        ("GetBucketVersioning", "PutBucketVersioning", None),
        "VersioningConfiguration",
        "",
    ),
    part(
        "replication",
        "replication",
        ("GetBucketReplication", "PutBucketReplication", Some("DeleteBucketReplication")),
        "ReplicationConfiguration",
        "ReplicationConfigurationNotFoundError",
    ),
    part(
        "objectLockConfiguration",
        "object-lock",
        ("GetObjectLockConfiguration", "PutObjectLockConfiguration", None),
        "ObjectLockConfiguration",
        "ObjectLockConfigurationNotFoundError",
    ),
];

/// Lists of configurations, each addressed by its id.
pub(super) static LISTS: &[List] = &[
    list(
        "analytics",
        "analytics",
        "AnalyticsConfiguration",
        (
            "ListBucketAnalyticsConfigurations",
            "PutBucketAnalyticsConfiguration",
            "DeleteBucketAnalyticsConfiguration",
        ),
    ),
    list(
        "intelligentTiering",
        "intelligent-tiering",
        "IntelligentTieringConfiguration",
        (
            "ListBucketIntelligentTieringConfigurations",
            "PutBucketIntelligentTieringConfiguration",
            "DeleteBucketIntelligentTieringConfiguration",
        ),
    ),
    list(
        "inventory",
        "inventory",
        "InventoryConfiguration",
        (
            "ListBucketInventoryConfigurations",
            "PutBucketInventoryConfiguration",
            "DeleteBucketInventoryConfiguration",
        ),
    ),
    list(
        "metrics",
        "metrics",
        "MetricsConfiguration",
        (
            "ListBucketMetricsConfigurations",
            "PutBucketMetricsConfiguration",
            "DeleteBucketMetricsConfiguration",
        ),
    ),
];

/// A list of configurations: a field of the spec, and the calls that read, write and remove one.
pub(super) struct List {
    pub(super) field: &'static str,
    query: &'static str,
    /// Name of the element, in lists and as the root of a body.
    element: &'static str,
    list: &'static str,
    put: &'static str,
    delete: &'static str,
}

const fn list(
    field: &'static str,
    query: &'static str,
    element: &'static str,
    (list, put, delete): (&'static str, &'static str, &'static str),
) -> List {
    List { field, query, element, list, put, delete }
}

impl List {
    /// Reads all pages.
    pub(super) async fn read(&self, aws: &Session, bucket: &str, fields: &[Field]) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        let mut next: Option<String> = None;
        for _ in 0..100 {
            let mut query = vec![(self.query, "")];
            query.extend(next.as_deref().map(|token| ("continuation-token", token)));
            let answer = aws.xml(&S3, self.list, "GET", bucket, &query, None).await?;
            let document = crate::client::parse_xml(&answer)?;
            let items = document.root_element().children();
            let items = items.filter(|node| node.tag_name().name() == self.element);
            all.extend(items.map(|item| from_xml(fields, item)));
            next = xml_text(&answer, "NextContinuationToken").filter(|token| !token.is_empty());
            if next.is_none() {
                break;
            }
        }
        Ok(all)
    }

    /// Removes what is too much, and writes what is missing or differs.
    pub(super) async fn update(
        &self,
        aws: &Session,
        bucket: &str,
        field: &Field,
        (desired, seen): (&Value, &Value),
    ) -> Result<()> {
        let items = |spec: &Value| spec[self.field].as_array().cloned().unwrap_or_default();
        let id = |item: &Value| item["id"].as_str().unwrap_or_default().to_owned();
        let (desired, seen) = (items(desired), items(seen));
        for old in seen.iter().filter(|old| !desired.iter().any(|new| id(new) == id(old))) {
            let query = [(self.query, ""), ("id", &id(old))];
            aws.xml(&S3, self.delete, "DELETE", bucket, &query, None).await?;
        }
        let one = [field.clone()];
        let same = |new: &Value, old: &Value| {
            compare(&one, &json!({self.field: [new]}), &json!({self.field: [old]})).is_empty()
        };
        for new in desired.iter().filter(|new| !seen.iter().any(|old| same(new, old))) {
            let mut body = format!("<{} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", self.element);
            to_xml(item_fields(field), new, &mut body);
            body.push_str(&format!("</{}>", self.element));
            let query = [(self.query, ""), ("id", &id(new))];
            aws.xml(&S3, self.put, "PUT", bucket, &query, Some(body)).await?;
        }
        Ok(())
    }
}

/// Returns the fields of an object, or of the items of a list.
pub(super) fn item_fields(field: &Field) -> &[Field] {
    match &field.kind {
        Type::Object(fields) => fields,
        Type::List(item) => match &**item {
            Type::Object(fields) => fields,
            _ => &[],
        },
        _ => &[],
    }
}

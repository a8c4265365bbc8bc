//! s3 Bucket.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::{
    client::{Failure, Result, S3, Session, optional, path},
    fields::{Difference, Field, Type, escape, from_xml, parse, to_xml},
    kind::{About, Deletion, Kind, Object, Observed, Reference, Tags, differs},
    policy,
};

#[derive(Debug)]
pub(crate) struct Bucket;

static ABOUT: About = About {
    service: &S3,
    kind: "Bucket",
    plural: "buckets",
    spec: LazyLock::new(|| {
        parse(
            "abac^{status} accelerate~{status~Suspended} acl^>ACL
             analytics^[]{filter{and{prefix tags[]>Tag*{key value}} prefix tag{key value}} id
                 storageClassAnalysis{dataExport{destination{s3BucketDestination{bucket bucketAccountID format prefix}}
                 outputSchemaVersion}}}
             cors~{corsRules~[]>CORSRule*{allowedHeaders[]>AllowedHeader* allowedMethods[]>AllowedMethod*
                 allowedOrigins[]>AllowedOrigin* exposeHeaders[]>ExposeHeader* id>ID maxAgeSeconds:i}}
             createBucketConfiguration^{bucket{dataRedundancy type} location{name type} locationConstraint}
             encryption{rules[]>Rule*{applyServerSideEncryptionByDefault{kmsMasterKeyID>KMSMasterKeyID
                 sseAlgorithm>SSEAlgorithm} bucketKeyEnabled:b~}}
             grantFullControl^ grantRead^ grantReadACP^ grantWrite^ grantWriteACP^
             intelligentTiering^[]{filter{and{prefix tags[]>Tag*{key value}} prefix tag{key value}} id status
                 tierings[]>Tiering*{accessTier days:i}}
             inventory^[]{destination{s3BucketDestination{accountID bucket encryption{sseKMS>SSE-KMS{keyID}} format
                 prefix}} filter{prefix} id includedObjectVersions isEnabled:b optionalFields[]>OptionalFields/Field
                 schedule{frequency}}
             lifecycle~{rules~[]>Rule*{abortIncompleteMultipartUpload{daysAfterInitiation:i}
                 expiration{date:t days:i expiredObjectDeleteMarker:b}
                 filter{and{objectSizeGreaterThan:i objectSizeLessThan:i prefix tags[]>Tag*{key value}}
                     objectSizeGreaterThan:i objectSizeLessThan:i prefix tag{key value}}
                 id>ID noncurrentVersionExpiration{newerNoncurrentVersions:i noncurrentDays:i}
                 noncurrentVersionTransitions[]>NoncurrentVersionTransition*{newerNoncurrentVersions:i noncurrentDays:i
                     storageClass}
                 prefix status transitions[]>Transition*{date:t days:i storageClass}}}
             logging~{loggingEnabled{targetBucket targetGrants[]>TargetGrants/Grant{grantee{displayName emailAddress
                 id>ID type_>xsi:type uRI>URI} permission} targetPrefix}}
             metrics^[]{filter{accessPointARN and{accessPointARN prefix tags[]>Tag*{key value}} prefix tag{key value}} id}
             name!= namespace=^
             notification~{lambdaFunctionConfigurations~[]>CloudFunctionConfiguration*{events[]>Event*
                     filter{key>S3Key{filterRules[]>FilterRule*{name value}}} id lambdaFunctionARN>CloudFunction}
                 queueConfigurations~[]>QueueConfiguration*{events[]>Event*
                     filter{key>S3Key{filterRules[]>FilterRule*{name value}}} id queueARN>Queue}
                 topicConfigurations~[]>TopicConfiguration*{events[]>Event*
                     filter{key>S3Key{filterRules[]>FilterRule*{name value}}} id topicARN>Topic}}
             objectLockConfiguration{rule{defaultRetention{days:i mode years:i}}} objectLockEnabledForBucket^:b
             objectOwnership^ ownershipControls{rules[]>Rule*{objectOwnership}} policy~
             publicAccessBlock~{blockPublicACLs:b~>BlockPublicAcls blockPublicPolicy:b~
                 ignorePublicACLs:b~>IgnorePublicAcls restrictPublicBuckets:b~}
             replication~{role roleRef@ rules~[]>Rule*{deleteMarkerReplication{status}
                 destination{accessControlTranslation{owner} account bucket
                     encryptionConfiguration{replicaKMSKeyID>ReplicaKmsKeyID}
                     metrics{eventThreshold{minutes:i} status} replicationTime{status time{minutes:i}} storageClass}
                 existingObjectReplication{status}
                 filter{and{prefix tags[]>Tag*{key value}} prefix tag{key value}} id>ID prefix priority:i
                 sourceSelectionCriteria{replicaModifications{status}
                     sseKMSEncryptedObjects>SseKmsEncryptedObjects{status}} status}}
             requestPayment~{payer~BucketOwner} tagging~{tagSet~[]>TagSet/Tag{key value}}
             versioning~{status~Suspended}
             website~{errorDocument{key} indexDocument{suffix} redirectAllRequestsTo{hostName protocol}
                 routingRules[]>RoutingRules/RoutingRule{condition{httpErrorCodeReturnedEquals keyPrefixEquals}
                 redirect{hostName httpRedirectCode protocol replaceKeyPrefixWith replaceKeyWith}}}",
        )
    }),
    status: LazyLock::new(|| parse("location")),
    adoption: &[("name", "spec.name")],
    identity: &["name"],
    references: &[Reference {
        field: "replication.role",
        reference: "replication.roleRef",
        target: ("iam", "Role"),
        value: "status.ackResourceMetadata.arn",
        prefix: "",
        required: false,
        list: false,
    }],
    terminal: &[
        "PermanentRedirect",
        "InvalidLocationConstraint",
        "MalformedXML",
        "IllegalLocationConstraintException",
        "InvalidNamespaceHeader",
        "MissingNamespaceHeader",
        "BucketAlreadyExists",
        "InvalidBucketName",
    ],
    late: &["encryption", "ownershipControls"],
    tags: Tags::List("tagging.tagSet"),
    resync: None,
    actions: &[
        "s3:CreateBucket",
        "s3:DeleteBucket",
        "s3:ListBucket",
        "s3:GetBucketTagging",
        "s3:PutBucketTagging",
        "s3:GetBucketPolicy",
        "s3:PutBucketPolicy",
        "s3:DeleteBucketPolicy",
        "s3:PutBucketAcl",
        "s3:GetBucketCORS",
        "s3:PutBucketCORS",
        "s3:GetEncryptionConfiguration",
        "s3:PutEncryptionConfiguration",
        "s3:GetLifecycleConfiguration",
        "s3:PutLifecycleConfiguration",
        "s3:GetBucketLogging",
        "s3:PutBucketLogging",
        "s3:GetBucketNotification",
        "s3:PutBucketNotification",
        "s3:GetBucketOwnershipControls",
        "s3:PutBucketOwnershipControls",
        "s3:GetBucketPublicAccessBlock",
        "s3:PutBucketPublicAccessBlock",
        "s3:GetReplicationConfiguration",
        "s3:PutReplicationConfiguration",
        "s3:GetBucketRequestPayment",
        "s3:PutBucketRequestPayment",
        "s3:GetBucketVersioning",
        "s3:PutBucketVersioning",
        "s3:GetBucketWebsite",
        "s3:PutBucketWebsite",
        "s3:DeleteBucketWebsite",
        "s3:GetBucketObjectLockConfiguration",
        "s3:PutBucketObjectLockConfiguration",
        "s3:GetAccelerateConfiguration",
        "s3:PutAccelerateConfiguration",
        "iam:PassRole",
    ],
    columns: &[],
};

/// A sub-resource: a field of the spec, and the calls that read, write and remove it.
struct Part {
    field: &'static str,
    /// Query parameter that addresses it.
    query: &'static str,
    get: &'static str,
    put: &'static str,
    /// Without one, the default is put in its place.
    delete: Option<&'static str>,
    /// Root element of the body.
    root: &'static str,
    /// Code that says that there is none.
    absent: &'static str,
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
static PARTS: &[Part] = &[
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

/// Sub-resources that were set before, so that their removal is noticed.
const SET: &str = "s3.services.k8s.aws/set";

/// Names the sub-resources that the object mentions or that were set before: only those are read.
fn watched(object: &Object) -> Vec<&'static str> {
    let had = object.annotations.get(SET).and_then(Value::as_str).unwrap_or_default();
    let names = PARTS.iter().map(|part| part.field).chain(["policy"]);
    names
        .filter(|field| object.spec.get(*field).is_some() || had.split(',').any(|name| name == *field))
        .collect()
}

fn fields_of(field: &str) -> &'static [Field] {
    let found = ABOUT.spec.iter().find(|known| known.name == field);
    match found.map(|found| &found.kind) {
        Some(Type::Object(fields)) => fields,
        _ => &[],
    }
}

#[async_trait]
impl Kind for Bucket {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, object: &Object) -> Result<()> {
        for field in ["analytics", "intelligentTiering", "inventory", "metrics", "abac", "namespace"] {
            if object
                .spec
                .get(field)
                .is_some_and(|value| value.as_array().is_none_or(|list| !list.is_empty()))
            {
                return Err(Failure::Terminal(format!("spec.{field} is not supported by this controller")));
            }
        }
        Ok(())
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let name = object.need("name");
        let bucket = path(&[name]);
        let head = aws
            .xml_header(&S3, "HeadBucket", ("HEAD", &bucket), Vec::new(), None, "x-amz-bucket-region")
            .await;
        let region = match head {
            Err(failure) if failure.is(&["AccessDenied", "Forbidden"]) => {
                // Somebody else's: say so when it is created.
                return Err(Failure::Terminal(format!(
                    "bucket {name} is owned by another account, or access to it is denied"
                )));
            }
            other => match optional(other, &[])? {
                Some(region) => region,
                None => return Ok(None),
            },
        };
        if let Some(region) = region.filter(|region| *region != aws.region && !aws.region.is_empty()) {
            return Err(Failure::Terminal(format!(
                "bucket {name} is in region {region}, not {}",
                aws.region
            )));
        }
        let mut spec = json!({"name": name});
        for field in watched(object) {
            if field == "policy" {
                let read = aws.xml(&S3, "GetBucketPolicy", "GET", &bucket, &[("policy", "")], None).await;
                if let Some(policy) = optional(read, &["NoSuchBucketPolicy"])? {
                    spec["policy"] = json!(policy);
                }
                continue;
            }
            let Some(part) = PARTS.iter().find(|part| part.field == field) else { continue };
            let read = aws.xml(&S3, part.get, "GET", &bucket, &[(part.query, "")], None).await;
            let Some(answer) = optional(read, &[part.absent, "UnsupportedArgument"])? else { continue };
            let document = super::route53_hosted_zone::parse_xml(&answer)?;
            spec[field] = from_xml(fields_of(field), document.root_element());
        }
        let arn = format!("arn:{}:s3:::{name}", aws.partition);
        let status = json!({"location": format!("/{name}")});
        Ok(Some(Observed { spec, status, arn: Some(arn), ..Observed::default() }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let mut headers = Vec::new();
        for (field, header) in [
            ("acl", "x-amz-acl"),
            ("grantFullControl", "x-amz-grant-full-control"),
            ("grantRead", "x-amz-grant-read"),
            ("grantReadACP", "x-amz-grant-read-acp"),
            ("grantWrite", "x-amz-grant-write"),
            ("grantWriteACP", "x-amz-grant-write-acp"),
            ("objectOwnership", "x-amz-object-ownership"),
        ] {
            headers.extend(object.spec(field).map(|value| (header.to_owned(), value.to_owned())));
        }
        if object.spec["objectLockEnabledForBucket"].as_bool() == Some(true) {
            headers.push(("x-amz-bucket-object-lock-enabled".to_owned(), "true".to_owned()));
        }
        let location = object.spec("createBucketConfiguration.locationConstraint").unwrap_or(&aws.region);
        let body = (location != "us-east-1").then(|| {
            format!(
                "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>{}\
                 </LocationConstraint></CreateBucketConfiguration>",
                escape(location)
            )
        });
        let address = path(&[object.need("name")]);
        aws.xml_header(&S3, "CreateBucket", ("PUT", &address), headers, body, "location").await?;
        Ok(json!({}))
    }

    fn annotations(&self, object: &Object) -> Vec<(&'static str, String)> {
        let watched = watched(object);
        if watched.is_empty() { Vec::new() } else { vec![(SET, watched.join(","))] }
    }

    fn refine(&self, object: &Object, observed: &Observed, changed: &mut Vec<Difference>) {
        let watched = watched(object);
        let text = |value: &Value| value["policy"].as_str().unwrap_or_default().to_owned();
        changed.retain(|difference| {
            watched.contains(&difference.field.as_str())
                && (difference.field != "policy" || !policy::same(&text(&object.spec), &text(&observed.spec)))
        });
        // A part that left the spec goes as a whole.
        for part in PARTS.iter().filter(|part| watched.contains(&part.field)) {
            let empty = |value: &Value| value.as_object().is_none_or(serde_json::Map::is_empty);
            let left = object.spec.get(part.field).is_none() && !empty(&observed.spec[part.field]);
            if left && part.delete.is_some() && !differs(changed, part.field) {
                changed.push(Difference { field: part.field.to_owned(), path: part.field.to_owned() });
            }
        }
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        _: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let bucket = path(&[object.need("name")]);
        for part in PARTS.iter().filter(|part| differs(changed, part.field)) {
            let failed = |failure: Failure| match failure {
                Failure::Api(mut error) => {
                    error.message = format!("Error syncing property '{}': {}", part.field, error.message);
                    Failure::Api(error)
                }
                other => other,
            };
            let query = [(part.query, "")];
            let value = object.spec.get(part.field).filter(|value| !value.is_null());
            let call = match (value, part.delete) {
                (None, Some(delete)) => aws.xml(&S3, delete, "DELETE", &bucket, &query, None),
                (value, _) => {
                    let default = json!({"status": "Suspended", "payer": "BucketOwner"});
                    let mut body =
                        format!("<{} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", part.root);
                    to_xml(fields_of(part.field), value.unwrap_or(&default), &mut body);
                    if part.field == "objectLockConfiguration" {
                        let enabled = "<ObjectLockEnabled>Enabled</ObjectLockEnabled>";
                        body = body.replacen('>', &format!(">{enabled}"), 1);
                    }
                    body.push_str(&format!("</{}>", part.root));
                    aws.xml(&S3, part.put, "PUT", &bucket, &query, Some(body))
                }
            };
            call.await.map_err(failed)?;
        }
        if differs(changed, "policy") {
            let query = [("policy", "")];
            match object.spec("policy") {
                Some(policy) => {
                    let body = Some(policy.to_owned());
                    aws.xml(&S3, "PutBucketPolicy", "PUT", &bucket, &query, body).await?
                }
                None => aws.xml(&S3, "DeleteBucketPolicy", "DELETE", &bucket, &query, None).await?,
            };
        }
        Ok(())
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        let bucket = path(&[object.need("name")]);
        optional(aws.xml(&S3, "DeleteBucket", "DELETE", &bucket, &[], None).await, &[])?;
        Ok(Deletion::Gone)
    }
}

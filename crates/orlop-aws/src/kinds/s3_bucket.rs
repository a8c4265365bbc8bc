//! s3 Bucket.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    s3_bucket_acl,
    s3_bucket_parts::{LISTS, PARTS, item_fields},
};
use crate::{
    client::{Failure, Result, S3, Session, optional, parse_xml, path, sha256_hex},
    fields::{Difference, Field, Type, escape, from_xml, parse, to_xml},
    kind::{Deletion, Descriptor, Kind, Object, Observed, Reference, Tags, differs},
    policy,
};

#[derive(Debug)]
pub(crate) struct Bucket;

static DESCRIPTOR: Descriptor = Descriptor {
    service: &S3,
    kind: "Bucket",
    plural: "buckets",
    spec: LazyLock::new(|| {
        parse(
            "abac~{status~Disabled} accelerate~{status~Suspended} acl^>ACL
             analytics~#[]{filter{and{prefix tags[]>Tag*{key value}} prefix tag{key value}} id
                 storageClassAnalysis{dataExport{destination{s3BucketDestination{bucket bucketAccountID format prefix}}
                 outputSchemaVersion}}}
             cors~{corsRules~[]>CORSRule*{allowedHeaders[]>AllowedHeader* allowedMethods[]>AllowedMethod*
                 allowedOrigins[]>AllowedOrigin* exposeHeaders[]>ExposeHeader* id>ID maxAgeSeconds:i}}
             createBucketConfiguration^{bucket{dataRedundancy type} location{name type} locationConstraint}
             encryption{rules[]>Rule*{applyServerSideEncryptionByDefault{kmsMasterKeyID>KMSMasterKeyID
                 sseAlgorithm>SSEAlgorithm} bucketKeyEnabled:b~}}
             grantFullControl^ grantRead^ grantReadACP^ grantWrite^ grantWriteACP^
             intelligentTiering~#[]{filter{and{prefix tags[]>Tag*{key value}} prefix tag{key value}} id status
                 tierings[]>Tiering*{accessTier days:i}}
             inventory~#[]{destination{s3BucketDestination{accountID bucket encryption{sseKMS>SSE-KMS{keyID}} format
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
             metrics~#[]{filter{accessPointARN and{accessPointARN prefix tags[]>Tag*{key value}} prefix tag{key value}} id}
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
    late: &["encryption?", "ownershipControls?"],
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
        "s3:GetBucketAbac",
        "s3:PutBucketAbac",
        "s3:GetBucketAcl",
        "s3:PutBucketAcl",
        "s3:GetAnalyticsConfiguration",
        "s3:PutAnalyticsConfiguration",
        "s3:GetIntelligentTieringConfiguration",
        "s3:PutIntelligentTieringConfiguration",
        "s3:GetInventoryConfiguration",
        "s3:PutInventoryConfiguration",
        "s3:GetMetricsConfiguration",
        "s3:PutMetricsConfiguration",
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

/// Parts that were set before, each with a hash of what it was: their removal is noticed, and so is a change of what AWS
/// does not show.
const SET: &str = "s3.services.k8s.aws/set";

/// Parts of a bucket that are no field of their own name.
const ACL: &str = "acl";
const POLICY: &str = "policy";
const LOCK: &str = "objectLockConfiguration";
const OWNERSHIP: &str = "ownershipControls";

/// Returns the spec with the fields of a create as what they are later: parts.
fn parts_of(object: &Object) -> Value {
    let mut spec = object.spec.clone();
    if let (Some(ownership), None) = (object.spec("objectOwnership"), spec.get(OWNERSHIP)) {
        spec[OWNERSHIP] = json!({"rules": [{"objectOwnership": ownership}]});
    }
    if object.spec["objectLockEnabledForBucket"] == true && spec.get(LOCK).is_none() {
        spec[LOCK] = json!({});
    }
    let acl = s3_bucket_acl::headers(object);
    if s3_bucket_acl::is_given(object) {
        spec[ACL] = acl.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    } else if let Some(fields) = spec.as_object_mut() {
        fields.remove(ACL);
    }
    spec
}

/// Names the parts that the object mentions or that were set before: only those are read.
fn watched(object: &Object) -> Vec<&'static str> {
    let spec = parts_of(object);
    let names = PARTS.iter().map(|part| part.field).chain(LISTS.iter().map(|list| list.field));
    let names = names.chain([ACL, POLICY]);
    names.filter(|field| spec.get(*field).is_some() || recorded_hash(object, field).is_some()).collect()
}

fn hash_of(value: &Value) -> String {
    sha256_hex(value.to_string().as_bytes())[..8].to_owned()
}

/// Returns the hash that a part had when it was last written.
fn recorded_hash<'a>(object: &'a Object, field: &str) -> Option<&'a str> {
    let all = object.annotations.get(SET).and_then(Value::as_str).unwrap_or_default();
    all.split(',')
        .filter_map(|note| note.split_once('='))
        .find(|(name, _)| *name == field)
        .map(|found| found.1)
}

fn field(name: &str) -> Option<&'static Field> {
    DESCRIPTOR.spec.iter().find(|known| known.name == name)
}

fn fields_of(name: &str) -> &'static [Field] {
    field(name).map_or(&[], item_fields)
}

/// Returns the default of a part.
fn default_of(name: &str) -> Value {
    let fields = fields_of(name).iter();
    let leaves = fields.filter(|field| matches!(field.kind, Type::Leaf(_)));
    Value::Object(leaves.filter_map(|field| Some((field.name.clone(), field.absent_value()?))).collect())
}

#[async_trait]
impl Kind for Bucket {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn validate(&self, object: &Object) -> Result<()> {
        let configuration = &object.spec["createBucketConfiguration"];
        let directory = ["bucket", "location"].iter().any(|field| configuration.get(*field).is_some());
        if directory || object.need("name").ends_with("--x-s3") {
            return Err(Failure::Terminal("directory buckets are not managed by this controller".to_owned()));
        }
        if object.spec["objectLockEnabledForBucket"] == false && object.spec.get(LOCK).is_some() {
            return Err(Failure::Terminal(
                "objectLockConfiguration needs objectLockEnabledForBucket".to_owned(),
            ));
        }
        Ok(())
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let name = object.need("name");
        let bucket = path(&[name]);
        let head = aws
            .xml_header(&S3, "HeadBucket", ("HEAD", &bucket, &[]), Vec::new(), None, "x-amz-bucket-region")
            .await;
        let region = match head {
            // The same answer for another account's bucket and for a missing permission, which may be granted later.
            Err(Failure::Api(mut error)) if error.status == 403 => {
                error.message =
                    format!("bucket {name} is owned by another account, or access to it is denied");
                return Err(Failure::Api(error));
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
            if let Some(value) = read_part(aws, &bucket, field).await? {
                spec[field] = value;
            }
        }
        let arn = format!("arn:{}:s3:::{name}", aws.partition);
        let status = json!({"location": format!("/{name}")});
        Ok(Some(Observed { spec, status, arn: Some(arn), ..Observed::default() }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let mut headers = Vec::new();
        if s3_bucket_acl::is_given(object) {
            headers = s3_bucket_acl::headers(object);
        }
        for (field, header) in
            [("objectOwnership", "x-amz-object-ownership"), ("namespace", "x-amz-bucket-namespace")]
        {
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
        aws.xml_header(&S3, "CreateBucket", ("PUT", &address, &[]), headers, body, "location").await?;
        Ok(json!({}))
    }

    fn annotations(&self, object: &Object) -> Vec<(&'static str, String)> {
        let spec = parts_of(object);
        let notes = watched(object).into_iter().map(|field| format!("{field}={}", hash_of(&spec[field])));
        let notes: Vec<String> = notes.collect();
        if notes.is_empty() { Vec::new() } else { vec![(SET, notes.join(","))] }
    }

    fn refine(&self, object: &Object, observed: &Observed, changed: &mut Vec<Difference>) {
        let (watched, spec) = (watched(object), parts_of(object));
        let text = |value: &Value| value[POLICY].as_str().unwrap_or_default().to_owned();
        changed.retain(|difference| {
            watched.contains(&difference.field.as_str())
                && (difference.field != POLICY || !policy::same(&text(&spec), &text(&observed.spec)))
        });
        for field in watched {
            if differs(changed, field) {
                continue;
            }
            let empty = is_empty(field, &observed.spec[field]);
            let is_off = |leaf: &&Field| leaf.absent.is_some() && matches!(leaf.kind, Type::Leaf(_));
            let differs = match spec.get(field) {
                _ if field == ACL => !s3_bucket_acl::matches_desired(object, &observed.spec[ACL]),
                // A part that left the spec goes as a whole. One with a default was compared with that.
                None => !empty && field != POLICY && !fields_of(field).iter().any(|leaf| is_off(&leaf)),
                Some(_) if field == LOCK && observed.spec.get(LOCK).is_none() => true,
                Some(_) if field == OWNERSHIP && object.spec.get(OWNERSHIP).is_none() => {
                    observed.spec[OWNERSHIP]["rules"][0]["objectOwnership"] != object.need("objectOwnership")
                }
                // Compared in full, by meaning.
                Some(_) if [POLICY, "tagging"].contains(&field) => false,
                // It reads as wanted, but something was taken out of it.
                Some(value) => recorded_hash(object, field).is_some_and(|known| known != hash_of(value)),
            };
            if differs {
                changed.push(Difference { field: field.to_owned(), path: field.to_owned() });
            }
        }
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let bucket = path(&[object.need("name")]);
        let spec = parts_of(object);
        let is_off = |value: &Value| value["objectLockEnabledForBucket"] == false;
        if differs(changed, LOCK) && is_off(&object.spec) {
            return Err(Failure::Terminal("object lock cannot be turned off".to_owned()));
        }
        if differs(changed, ACL) {
            let call = ("PUT", bucket.as_str(), [("acl", "")].as_slice());
            let headers = s3_bucket_acl::headers(object);
            let put = aws.xml_header(&S3, "PutBucketAcl", call, headers, None, "date").await;
            put.map_err(|failure| syncing(ACL, failure))?;
        }
        for list in LISTS.iter().filter(|list| differs(changed, list.field)) {
            let Some(field) = field(list.field) else { continue };
            let updated = list.update(aws, &bucket, field, (&spec, &observed.spec)).await;
            updated.map_err(|failure| syncing(list.field, failure))?;
        }
        for part in PARTS.iter().filter(|part| differs(changed, part.field)) {
            let query = [(part.query, "")];
            let value = spec.get(part.field).filter(|value| !value.is_null());
            let call = match (value, part.delete) {
                (None, Some(delete)) => aws.xml(&S3, delete, "DELETE", &bucket, &query, None),
                (value, _) => {
                    let default = default_of(part.field);
                    let mut body =
                        format!("<{} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", part.root);
                    if part.field == LOCK {
                        body.push_str("<ObjectLockEnabled>Enabled</ObjectLockEnabled>");
                    }
                    to_xml(fields_of(part.field), value.unwrap_or(&default), &mut body);
                    body.push_str(&format!("</{}>", part.root));
                    aws.xml(&S3, part.put, "PUT", &bucket, &query, Some(body))
                }
            };
            call.await.map_err(|failure| syncing(part.field, failure))?;
        }
        if differs(changed, POLICY) {
            let query = [(POLICY, "")];
            let call = match object.spec(POLICY) {
                Some(policy) => {
                    let body = Some(policy.to_owned());
                    aws.xml(&S3, "PutBucketPolicy", "PUT", &bucket, &query, body)
                }
                None => aws.xml(&S3, "DeleteBucketPolicy", "DELETE", &bucket, &query, None),
            };
            call.await.map_err(|failure| syncing(POLICY, failure))?;
        }
        Ok(())
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        let bucket = path(&[object.need("name")]);
        optional(aws.xml(&S3, "DeleteBucket", "DELETE", &bucket, &[], None).await, &[])?;
        Ok(Deletion::Gone)
    }
}

/// True if a part is as it is in a new bucket.
fn is_empty(field: &str, value: &Value) -> bool {
    match value {
        // Every bucket is encrypted, with S3-managed keys by default.
        Value::Object(fields) if field == "encryption" => {
            let rule = &fields.get("rules").unwrap_or(&Value::Null)[0];
            rule["applyServerSideEncryptionByDefault"]["sseAlgorithm"] == "AES256"
        }
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        other => other.is_null(),
    }
}

/// Names the part that a failure is about.
fn syncing(part: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Api(mut error) => {
            error.message = format!("Error syncing property '{part}': {}", error.message);
            Failure::Api(error)
        }
        other => other,
    }
}

/// Reads a part; `None` if the bucket has none.
async fn read_part(aws: &Session, bucket: &str, name: &str) -> Result<Option<Value>> {
    if name == POLICY {
        let read = aws.xml(&S3, "GetBucketPolicy", "GET", bucket, &[(POLICY, "")], None).await;
        return Ok(optional(read, &["NoSuchBucketPolicy"])?.map(Value::String));
    }
    if name == ACL {
        let answer = aws.xml(&S3, "GetBucketAcl", "GET", bucket, &[(ACL, "")], None).await?;
        return Ok(Some(s3_bucket_acl::observed(&parse_xml(&answer)?)));
    }
    if let Some(list) = LISTS.iter().find(|list| list.field == name) {
        return list.read(aws, bucket, fields_of(name)).await.map(|items| Some(Value::Array(items)));
    }
    let Some(part) = PARTS.iter().find(|part| part.field == name) else { return Ok(None) };
    let read = aws.xml(&S3, part.get, "GET", bucket, &[(part.query, "")], None).await;
    let Some(answer) = optional(read, &[part.absent, "UnsupportedArgument"])? else { return Ok(None) };
    let document = parse_xml(&answer)?;
    Ok(Some(from_xml(fields_of(name), document.root_element())))
}

//! A generic gRPC client: it uses reflection and has no compiled-in definition of the protocol.

use anyhow::{Context, Result, bail};
use prost::Message;
use prost::bytes::Buf;
use prost_reflect::{
    DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor, SerializeOptions,
};
use serde_json::Value;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_reflection::pb::v1alpha;
use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient as OldReflectionClient;

/// The version of reflection that the client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reflection {
    /// `grpc.reflection.v1`
    V1,
    /// `grpc.reflection.v1alpha`, whose messages have the same fields.
    V1Alpha,
}

/// A connection, and the descriptors that the server gave.
pub struct Client {
    channel: Channel,
    pool: DescriptorPool,
    reflection: Reflection,
    authorization: Option<MetadataValue<Ascii>>,
}

impl Client {
    /// Connects to `unix:PATH` or `tcp:HOST:PORT`.
    pub async fn connect(address: &str) -> Result<Client> {
        let uri = match address.strip_prefix("tcp:") {
            Some(rest) => format!("http://{rest}"),
            None => address.to_string(),
        };
        let endpoint = Endpoint::from_shared(uri.clone()).with_context(|| format!("use {uri}"))?;
        let channel = endpoint.connect().await.with_context(|| format!("connect to {uri}"))?;
        let (pool, reflection) = (DescriptorPool::new(), Reflection::V1);
        Ok(Client { channel, pool, reflection, authorization: None })
    }

    /// The same client, sending a token with each request.
    pub fn with_token(self, token: &str) -> Result<Client> {
        Ok(Client { authorization: Some(format!("Bearer {token}").parse()?), ..self })
    }

    /// A request with the token, if there is one.
    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }

    /// The same client, asking another version of reflection.
    pub fn by(self, reflection: Reflection) -> Client {
        Client { reflection, ..self }
    }

    /// The connection itself.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Asks reflection which services there are.
    pub async fn services(&mut self) -> Result<Vec<String>> {
        match self.reflect(MessageRequest::ListServices(String::new())).await? {
            MessageResponse::ListServicesResponse(list) => {
                Ok(list.service.into_iter().map(|service| service.name).collect())
            }
            other => bail!("reflection answered {other:?}"),
        }
    }

    /// Fetches the files that define `symbol`.
    pub async fn learn(&mut self, symbol: &str) -> Result<()> {
        match self.reflect(MessageRequest::FileContainingSymbol(symbol.to_string())).await? {
            MessageResponse::FileDescriptorResponse(files) => {
                for file in files.file_descriptor_proto {
                    self.pool.decode_file_descriptor_proto(file.as_slice())?;
                }
                Ok(())
            }
            other => bail!("reflection answered {other:?}"),
        }
    }

    /// Names of the methods of a service whose files [`Client::learn`] has fetched.
    pub fn methods(&self, service: &str) -> Result<Vec<String>> {
        let service = self.pool.get_service_by_name(service).context("service is not learnt")?;
        Ok(service.methods().map(|method| method.name().to_string()).collect())
    }

    /// Calls `SERVICE/METHOD` with a request given as JSON. The answer is JSON with the protocol's
    /// own names.
    pub async fn call(&self, service: &str, method: &str, request: Value) -> Result<Value> {
        let (path, codec, request) = self.prepare(service, method, request)?;
        let mut grpc =
            tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready().await.context("wait for the connection")?;
        json(&grpc.unary(self.request(request), path, codec).await?.into_inner())
    }

    /// Calls a method that answers with a stream.
    pub async fn stream(&self, service: &str, method: &str, request: Value) -> Result<Answers> {
        let (path, codec, request) = self.prepare(service, method, request)?;
        let mut grpc =
            tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready().await.context("wait for the connection")?;
        let request = self.request(request);
        Ok(Answers(grpc.server_streaming(request, path, codec).await?.into_inner()))
    }

    fn prepare(
        &self,
        service: &str,
        method: &str,
        request: Value,
    ) -> Result<(PathAndQuery, Dynamic, DynamicMessage)> {
        let path = PathAndQuery::try_from(format!("/{service}/{method}"))?;
        let described = self.pool.get_service_by_name(service).context("service is not learnt")?;
        let method: MethodDescriptor = described
            .methods()
            .find(|candidate| candidate.name() == method)
            .with_context(|| format!("{service} has no method {method}"))?;
        let message = DynamicMessage::deserialize(method.input(), request)?;
        Ok((path, Dynamic(method.output()), message))
    }

    async fn reflect(&self, request: MessageRequest) -> Result<MessageResponse> {
        let request =
            ServerReflectionRequest { host: String::new(), message_request: Some(request) };
        let channel = self.channel.clone();
        let answer = match self.reflection {
            Reflection::V1 => {
                let requests = self.request(tokio_stream::once(request));
                let mut client = ServerReflectionClient::new(channel);
                client.server_reflection_info(requests).await?.into_inner().message().await?
            }
            Reflection::V1Alpha => {
                let request = v1alpha::ServerReflectionRequest::decode(&*request.encode_to_vec())?;
                let requests = self.request(tokio_stream::once(request));
                let mut client = OldReflectionClient::new(channel);
                let answers = client.server_reflection_info(requests).await?;
                let answer = answers.into_inner().message().await?;
                let same = |of| ServerReflectionResponse::decode(&*Message::encode_to_vec(&of));
                answer.map(same).transpose()?
            }
        };
        let answer = answer.context("reflection gave no answer")?;
        answer.message_response.context("reflection gave an empty answer")
    }
}

/// A stream of answers.
pub struct Answers(Streaming<DynamicMessage>);

impl Answers {
    /// The next answer, as JSON; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Value>> {
        self.0.message().await?.as_ref().map(json).transpose()
    }
}

fn json(message: &DynamicMessage) -> Result<Value> {
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .stringify_64_bit_integers(false)
        .skip_default_fields(false);
    Ok(message.serialize_with_options(serde_json::value::Serializer, &options)?)
}

/// Decodes messages of a described type.
struct Dynamic(MessageDescriptor);

impl Codec for Dynamic {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = DynamicEncoder;
    type Decoder = Dynamic;

    fn encoder(&mut self) -> DynamicEncoder {
        DynamicEncoder
    }

    fn decoder(&mut self) -> Dynamic {
        Dynamic(self.0.clone())
    }
}

impl Decoder for Dynamic {
    type Item = DynamicMessage;
    type Error = tonic::Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Self::Error> {
        let message =
            DynamicMessage::decode(self.0.clone(), bytes.copy_to_bytes(bytes.remaining()));
        message.map(Some).map_err(|error| tonic::Status::internal(error.to_string()))
    }
}

/// Encodes messages of a described type.
struct DynamicEncoder;

impl Encoder for DynamicEncoder {
    type Item = DynamicMessage;
    type Error = tonic::Status;

    fn encode(
        &mut self,
        item: DynamicMessage,
        bytes: &mut EncodeBuf<'_>,
    ) -> Result<(), Self::Error> {
        item.encode(bytes).map_err(|error| tonic::Status::internal(error.to_string()))
    }
}
